"""Searches of one-pass models with latents or a length head, candidate by candidate."""

from __future__ import annotations

import math

import pytest
import torch
from miniatures import ctc_beam, ctc_greedy, nat, refiner, searched, tokens, transformer, translate

from workflow_src.decoding.candidates import noise_table
from workflow_src.decoding.ctc import collapse
from workflow_src.decoding.slots import rows_of_arrays
from workflow_src.nn.length import LengthChoice
from workflow_src.searches.argmax import ArgmaxSettings
from workflow_src.searches.ctc_beam import CtcBeamSettings
from workflow_src.searches.ctc_beam.compiled import PrefixBeam
from workflow_src.searches.npd import NpdSettings
from workflow_src.spec import MODEL
from workflow_src.types import PAD

SIZE = 9
SOURCE = tokens([3, 1, 5, 2], SIZE, end=True)


def model(loss: str = "ctc", seed: int = 4, **options):
    return nat(SIZE, SIZE, loss=loss, latent="vae", latent_dim=3, seed=seed, **options)


def alone(row: int):
    return SOURCE[row][SOURCE[row] != PAD][None]


def words_of(network, path: list[int]) -> list[int]:
    return collapse(path, network.blank) if network.config.loss == "ctc" else [i for i in path if i != network.blank]


def candidates(network, row: int, settings) -> dict[tuple[int, ...], float]:
    """Outputs of each draw of one sentence with the mean log-probability of their symbols."""
    memory = network.encode(alone(row))
    mean, deviation = network.prior(memory, memory.mask)
    noise = noise_table(settings.draws, network.config.max_positions, 3, settings.search_seed)
    scores: dict[tuple[int, ...], float] = {}
    for draw in range(settings.draws):
        z = mean + settings.temperature * deviation * noise[draw, : mean.size(1)]
        hidden, _ = network.hidden(memory, z=z)
        best, path = network.logits(hidden)[0].log_softmax(-1).max(-1)
        output = tuple(words_of(network, path.tolist()))
        scores[output] = max(scores.get(output, -math.inf), best.mean().item())
    return scores


@pytest.mark.parametrize("loss", ["ctc", "axe", "ce"])
@pytest.mark.parametrize("ranked", [False, True])
def test_noisy_parallel_decoding_is_the_best_of_its_draws(loss, ranked):
    network, settings = model(loss), NpdSettings(draws=6, temperature=2.0)
    rescorer = transformer(SIZE, SIZE, seed=2) if ranked else None
    hypotheses = searched({MODEL: network, "rescorer": rescorer}, SOURCE, settings)
    counts = []
    for row in range(4):
        scores = candidates(network, row, settings)
        if ranked:
            scores = {
                output: rescorer.log_probabilities(alone(row), torch.tensor([output], dtype=torch.int64)).sum().item()
                / (len(output) + 1)
                for output in scores
            }
        best = max(scores, key=scores.__getitem__)
        counts.append(len(scores))
        assert tuple(hypotheses.tokens[row]) == best and hypotheses.candidates[row] == len(scores)
        assert hypotheses.scores[row] == pytest.approx(scores[best], abs=1e-9)
    assert max(counts) > 1


def test_draws_at_no_temperature_are_the_latents_mean():
    network = model()
    greedy = ctc_greedy(network, SOURCE)
    for settings in (NpdSettings(draws=3, temperature=0.0), NpdSettings(draws=1, temperature=0.0)):
        hypotheses = searched({MODEL: network}, SOURCE, settings)
        assert hypotheses.tokens == greedy.tokens and hypotheses.scores == pytest.approx(greedy.scores, abs=1e-9)
    without_draws, with_draws = (CtcBeamSettings(beam=3, draws=draws, temperature=0.0) for draws in (0, 2))
    plain, hypotheses = (ctc_beam(network, SOURCE, settings) for settings in (without_draws, with_draws))
    assert hypotheses.tokens == plain.tokens and hypotheses.scores == pytest.approx(plain.scores, abs=1e-9)


def test_prefixes_of_several_draws_keep_their_best_score():
    network, settings = model(), CtcBeamSettings(beam=4, draws=5, temperature=2.0, word_bonus=0.5, min_ratio=0.0)
    hypotheses = ctc_beam(network, SOURCE, settings)
    noise = noise_table(5, network.config.max_positions, 3, 1)
    for row in range(4):
        memory = network.encode(alone(row))
        mean, deviation = network.prior(memory, memory.mask)
        best_scores: dict[tuple[int, ...], float] = {}
        for draw in range(5):
            hidden, mask = network.hidden(memory, z=mean + 2.0 * deviation * noise[draw, : mean.size(1)])
            logits, slots = network.logits(hidden).detach().numpy(), mask.sum(1).numpy()
            (row_of_draw,) = rows_of_arrays(logits, slots, 0.0, True)
            for score, output in PrefixBeam(network.blank, 4, None, None, 0.0, 0.5)(row_of_draw):
                best_scores[output] = max(best_scores.get(output, -math.inf), score + row_of_draw.base)
        best = max(best_scores, key=best_scores.__getitem__)
        assert tuple(hypotheses.tokens[row]) == best and hypotheses.candidates[row] == len(best_scores)
        assert hypotheses.scores[row] == pytest.approx(best_scores[best], abs=1e-9)


@pytest.mark.parametrize("loss", ["axe", "ce"])
@pytest.mark.parametrize("ranked", [False, True])
def test_argmax_is_the_best_of_its_lengths(loss, ranked):
    network = nat(SIZE, SIZE, loss=loss, max_length_difference=4, seed=6)
    rescorer = transformer(SIZE, SIZE, seed=2) if ranked else None
    hypotheses = searched({MODEL: network, "rescorer": rescorer}, SOURCE, ArgmaxSettings(lengths=4))
    for row in range(4):
        memory = network.encode(alone(row))
        best_scores: dict[tuple[int, ...], float] = {}
        for length in network.length.likely(memory, 4)[0]:
            hidden, mask = network.hidden(memory, length[None])
            best, path = network.logits(hidden)[0].log_softmax(-1).max(-1)
            assert len(path) == length and mask.all()
            output = tuple(words_of(network, path.tolist()))
            best_scores[output] = max(best_scores.get(output, -math.inf), best.mean().item())
        if ranked:
            best_scores = {
                output: rescorer.log_probabilities(alone(row), torch.tensor([output], dtype=torch.int64)).sum().item()
                / (len(output) + 1)
                for output in best_scores
            }
        best = max(best_scores, key=best_scores.__getitem__)
        assert tuple(hypotheses.tokens[row]) == best and hypotheses.scores[row] == pytest.approx(
            best_scores[best], abs=1e-9
        )


def test_one_length_is_the_predicted_one():
    network = nat(SIZE, SIZE, loss="ce", max_length_difference=4, seed=6)
    hypotheses = searched({MODEL: network}, SOURCE, ArgmaxSettings())
    lengths = network.length.predict(network.encode(SOURCE)).tolist()
    assert [len(row) for row in hypotheses.tokens] == lengths
    for settings in ({"lengthening": 1.0}, {"length_quantile": 0.8}):
        longer = searched({MODEL: network}, SOURCE, ArgmaxSettings(**settings))
        choice = LengthChoice(settings.get("length_quantile"), settings.get("lengthening", 0.0))
        lengths = network.length.predict(network.encode(SOURCE), choice)
        assert [len(row) for row in longer.tokens] == lengths.tolist()
    with pytest.raises(ValueError, match="length_quantile"):
        ArgmaxSettings(lengths=2, length_quantile=0.6)


@pytest.mark.parametrize("search", ["prior-mean", "delta", "score"])
def test_latents_of_source_positions_are_refined_sentence_by_sentence(search):
    latent_model, network = model(seed=5), refiner("score", seed=3)
    refiners = {"refiner": network} if search == "score" else {}
    steps = 0 if search == "prior-mean" else 3
    hypotheses = translate(latent_model, SOURCE, search, steps, trace=True, **refiners)
    assert len(hypotheses.traces) == steps + 1 and hypotheses.traces[-1] == hypotheses.tokens
    assert hypotheses.traces[0] == ctc_greedy(latent_model, SOURCE).tokens
    for row in range(4):
        memory = latent_model.encode(alone(row))
        z = latent_model.prior(memory, memory.mask)[0]
        for _ in range(steps):
            if search == "score":
                z = z + network.direction(memory, z, memory.mask)
            else:
                path = latent_model.logits(latent_model.hidden(memory, z=z)[0])[0].argmax(-1).tolist()
                words = torch.tensor([collapse(path, latent_model.blank)], dtype=torch.int64)
                z = latent_model.posterior(memory, words, memory.mask)[0]
        scores = latent_model.logits(latent_model.hidden(memory, z=z)[0])[0].log_softmax(-1)
        assert hypotheses.tokens[row] == collapse(scores.argmax(-1).tolist(), latent_model.blank)
        assert hypotheses.scores[row] == pytest.approx(scores.amax(-1).mean().item(), abs=1e-9)


def test_a_sentence_that_stops_leaves_the_others_as_they_are():
    """Also where it was the longest: source states keep the width of the batch."""
    network = model(seed=5)
    for threshold in (1e-3, 1e-1, 1.0):
        hypotheses = translate(network, SOURCE, "delta", 6, stop_threshold=threshold)
        for row in range(4):
            single = translate(network, alone(row), "delta", 6, stop_threshold=threshold)
            assert (hypotheses.tokens[row], hypotheses.steps[row]) == (single.tokens[0], single.steps[0])
