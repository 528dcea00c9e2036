"""Searches over samples of latents that say lengths, against one candidate at a time."""

from __future__ import annotations

import pytest
import torch
from miniatures import lanmt, one, padded, pairs, refiner, searched, transformer

from workflow_src.decoding.candidates import noise_table
from workflow_src.registry import searches
from workflow_src.searches.latent_search import LatentSearchSettings
from workflow_src.searches.latent_search.search import prior_noise
from workflow_src.spec import MODEL
from workflow_src.types import EOS

PLAN = LatentSearchSettings(lengths=3, samples=2, search_seed=7, lengthening=0.2)


@pytest.fixture(scope="module")
def model():
    return lanmt(seed=3)


@pytest.fixture(scope="module")
def batch():
    return pairs([4, 1, 6, 2], [3, 5, 1, 4])


@torch.no_grad()
def best_words(model, memory, z, length: int) -> tuple[tuple[int, ...], float]:
    """The best words of latents at a length, and the mean log-probability of their symbols."""
    hidden, _ = model.hidden(memory, z, torch.tensor([length + model.extra_positions]))
    logits = hidden[0] @ model.target_embedding.weight.T + model.output_bias
    logits[:, :EOS] = float("-inf")
    best, symbols = logits.log_softmax(-1).max(-1)
    return tuple(symbol for symbol in symbols.tolist() if symbol != EOS), float(best.mean())


def likely_lengths(model, z, words: int, lengthening: float) -> list[int]:
    """The lengths of an output of one sentence of so many words, most probable first."""
    scores = z[0].mean(0) @ model.length.linear.weight.T + model.length.linear.bias
    lengths: dict[int, float] = {}
    for place, value in enumerate(scores.tolist()):
        length = max(1, place - 4 + words + int(lengthening * (words + 2)))
        lengths[length] = max(value, lengths.get(length, value))
    return sorted(lengths, key=lambda length: -lengths[length])


@torch.no_grad()
def step_by_hand(model, memory, z, words: int, lengthening: float, network):
    """A step along the direction of a network, or a delta step at the most probable length of its own."""
    if network is not None:
        return z + network.direction(memory, z, memory.mask)
    tokens, _ = best_words(model, memory, z, likely_lengths(model, z, words, lengthening)[0])
    return model.posterior(memory, torch.tensor([tokens], dtype=torch.int64), memory.mask)[0]


@torch.no_grad()
def by_hand(model, source, network, steps, plan, teacher=None):
    memory, words = model.encode(source), source.size(1) - 1
    mean, deviation = model.prior(memory, memory.mask)
    noise = prior_noise(source[0].tolist(), plan.samples, source.size(1), 3, plan.search_seed)
    by_output = {}
    for sample in range(plan.samples):
        first = plan.mean_first and sample == 0
        z = mean + deviation * (0 if first else noise[sample][None])
        for _ in range(steps):
            z = step_by_hand(model, memory, z, words, plan.lengthening, network)
        for length in likely_lengths(model, z, words, plan.lengthening)[: plan.lengths]:
            tokens, score = best_words(model, memory, z, length)
            if teacher is not None:
                target = torch.tensor([list(tokens)], dtype=torch.int64)
                score = teacher.log_probability(teacher.scoring_states(source), target).item() / (len(tokens) + 1)
            by_output[tokens] = max(score, by_output.get(tokens, score))
    best = max(by_output, key=by_output.__getitem__)
    return list(best), by_output[best], len(by_output)


@pytest.mark.parametrize("name, steps", [("delta", 0), ("delta", 2), ("score", 1)])
@pytest.mark.parametrize("rescored", [False, True])
def test_the_winner_is_that_of_one_candidate_at_a_time(model, batch, name, steps, rescored):
    teacher = transformer() if rescored else None
    for plan in (PLAN, LatentSearchSettings(lengths=2, samples=3, search_seed=1, mean_first=True)):
        network = refiner("score") if name == "score" else None
        networks = {"model": model, "refiner": network, "rescorer": teacher}
        networks = {role: it for role, it in networks.items() if it is not None}
        named = {"steps": steps, "refinement": name, "rescorer": "teacher" if rescored else None}
        settings = plan.model_copy(update=named)
        hypotheses = searched(networks, batch.source, settings)
        wider = searched(networks, padded(batch).source, settings)
        assert hypotheses.tokens == wider.tokens and hypotheses.steps == [steps] * 4
        for row in range(4):
            source = one(batch, row).source
            tokens, score, count = by_hand(model, source, network, steps, plan, teacher)
            assert hypotheses.tokens[row] == tokens and hypotheses.candidates[row] == count
            assert hypotheses.scores[row] == pytest.approx(score, abs=1e-10)


def test_draws_are_those_of_one_candidate_at_a_time(model, batch):
    npd = searches()["npd"]
    settings = npd.settings(draws=4, temperature=2.0, search_seed=5)
    hypotheses = searched({MODEL: model}, batch.source, settings)
    assert searched({MODEL: model}, padded(batch).source, settings).tokens == hypotheses.tokens
    table, lengths = noise_table(4, 64, 3, 5), set()
    for row in range(4):
        memory = model.encode(one(batch, row).source)
        mean, deviation = model.prior(memory, memory.mask)
        tried = []
        for draw in range(4):
            z = mean + 2.0 * deviation * table[draw, : mean.size(1)]
            length = int(model.length.predict(memory, z=z))
            lengths.add((row, length))
            tried.append(best_words(model, memory, z, length))
        tokens, score = max(tried, key=lambda pair: pair[1])
        assert hypotheses.tokens[row] == list(tokens) and hypotheses.scores[row] == pytest.approx(score, abs=1e-10)
    assert len(lengths) > 4, "no sentence has draws of several lengths: nothing is tested"
