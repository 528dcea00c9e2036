from __future__ import annotations

import itertools
import math

import pytest
import torch
from miniatures import decode, ending, lvm, one, padded, pairs, refiner, searched, transformer, translate

from workflow_src.nn.models import Refiner
from workflow_src.searches.latent_search import LatentSearchSettings
from workflow_src.searches.latent_search.search import prior_noise
from workflow_src.types import EOS, length_mask

PLAN = {"lengths": 3, "samples": 2, "search_seed": 7}


@pytest.fixture(scope="module")
def model():
    return lvm()


@pytest.fixture(scope="module")
def teacher():
    return transformer()


@pytest.fixture(scope="module")
def batch():
    return pairs([4, 1, 6, 2], [3, 5, 1, 4])


def network(search: str):
    return refiner(search) if search in ("score", "energy") else None


def run(model, source, search, steps, plan=PLAN, rescorer=None, scored=True):
    settings = LatentSearchSettings(
        **plan,
        steps=steps,
        refinement=None if search == "prior-mean" else search,
        rescorer="teacher" if rescorer is not None else None,
    )
    networks = {"model": model, "refiner": network(search), "rescorer": rescorer}
    return searched({role: it for role, it in networks.items() if it is not None}, source, settings, scored)


def by_hand_lengths(model, memory, source_length):
    """All lengths of one sentence from 1 on, the most probable first, one class at a time."""
    probabilities = model.length(memory)[0].tolist()
    by_length: dict[int, float] = {}
    for index, value in enumerate(probabilities):
        longest = model.config.max_positions - model.config.end_symbol
        length = max(1, min(index - model.config.max_length_difference + source_length, longest))
        by_length[length] = max(value, by_length.get(length, -math.inf))
    return sorted(by_length, key=lambda length: -by_length[length])


@torch.no_grad()
def by_hand(model, source, search, steps, plan, teacher=None):
    """One sentence, one candidate at a time, by the algorithm as written; (tokens, score) of all in order."""
    memory = model.encode(source)
    lengths = by_hand_lengths(model, memory, source.size(1) - 1)[: plan["lengths"]]
    # One latent more where targets have an end symbol, which is the first that may be put out.
    end = model.config.end_symbol
    first_symbol = EOS if end else EOS + 1
    count, width = plan["lengths"] * plan["samples"], model.config.latent_dim
    noise = prior_noise(source[0].tolist(), count, max(lengths) + end, width, plan["search_seed"])
    candidates = []
    for rank, sample in itertools.product(range(plan["lengths"]), range(plan["samples"])):
        mask = torch.ones(1, lengths[rank] + end, dtype=torch.bool)
        mean, deviation = model.prior(memory, mask)
        z = mean + deviation * noise[rank * plan["samples"] + sample, : lengths[rank] + end]
        if plan.get("mean_first") and sample == 0:
            z = mean
        for _ in range(steps):
            if search == "delta":
                words = decode(model, memory, z, mask)[..., first_symbol:].argmax(-1) + first_symbol
                z = model.posterior(memory, words, mask)[0]
            elif search in ("score", "energy"):
                z = z + network(search).direction(memory, z, mask)
        scores = decode(model, memory, z, mask)[0, :, first_symbol:].log_softmax(-1)
        best = scores.max(-1)
        tokens = [token for token in (best.indices + first_symbol).tolist() if token != EOS]
        score = float(best.values.mean())
        if teacher is not None:
            symbols = [*tokens, EOS]
            prefix, total = [], 0.0
            for symbol in symbols:
                prefix_ids = torch.tensor([prefix], dtype=torch.int64).reshape(1, -1)
                hidden = teacher.hidden(teacher.encode(source), prefix_ids)
                total += float(teacher.logits(hidden)[0, -1].log_softmax(-1)[symbol])
                prefix.append(symbol)
            score = total / len(symbols)
        candidates.append((tokens, score))
    return candidates


@pytest.mark.parametrize(
    "search, steps, ranked_by_teacher, mean_first",
    [
        ("prior-mean", 0, False, True),
        ("prior-mean", 0, True, False),
        ("delta", 1, True, True),
        ("delta", 1, False, False),
        ("score", 2, True, False),
        ("energy", 1, False, True),
    ],
)
def test_the_winner_is_the_best_of_all_candidates(model, teacher, batch, search, steps, ranked_by_teacher, mean_first):
    plan = {"lengths": 3, "samples": 2, "search_seed": 7, "mean_first": mean_first}
    rescorer = teacher if ranked_by_teacher else None
    batched = run(model, batch.source, search, steps, plan, rescorer=rescorer)
    for row in range(4):
        candidates = by_hand(model, one(batch, row).source, search, steps, plan, rescorer)
        best = max(score for _, score in candidates)
        assert batched.scores[row] == pytest.approx(best, abs=1e-11)
        assert batched.tokens[row] in [tokens for tokens, score in candidates if score > best - 1e-11]
        assert batched.candidates[row] == len({tuple(tokens) for tokens, _ in candidates})
    assert batched.steps == [steps] * 4


@pytest.mark.parametrize(
    "search, steps, ranked_by_teacher",
    [("prior-mean", 0, True), ("delta", 1, True), ("score", 2, False), ("energy", 1, False)],
)
def test_candidates_with_end_symbols_are_ranked_and_distinguished_without_them(
    teacher, batch, search, steps, ranked_by_teacher
):
    """Candidates may become equal, also of different lengths, or empty when their end symbols are dropped."""
    model, plan = ending(), {"lengths": 4, "samples": 4, "search_seed": 7}
    rescorer = teacher if ranked_by_teacher else None
    batched = run(model, batch.source, search, steps, plan, rescorer=rescorer)
    wider = run(model, padded(batch).source, search, steps, plan, rescorer=rescorer)
    assert wider.tokens == batched.tokens and wider.scores == pytest.approx(batched.scores, abs=1e-12)
    shorter = 0
    for row in range(4):
        candidates = by_hand(model, one(batch, row).source, search, steps, plan, rescorer)
        best = max(score for _, score in candidates)
        assert batched.scores[row] == pytest.approx(best, abs=1e-11)
        assert batched.tokens[row] in [tokens for tokens, score in candidates if score > best - 1e-11]
        assert batched.candidates[row] == len({tuple(tokens) for tokens, _ in candidates})
        lengths = by_hand_lengths(model, model.encode(one(batch, row).source), int(batch.source_mask[row].sum()) - 1)
        shorter += sum(
            len(tokens) < length
            for (tokens, _), length in zip(
                candidates, [length for length in lengths[:4] for _ in range(4)], strict=True
            )
        )
    assert shorter > 8


def test_only_empty_candidates_are_one(teacher, batch):
    model = ending()
    with torch.no_grad():
        model.output_bias[EOS] += 1000
    for rescorer in (None, teacher):
        hypotheses = run(model, batch.source, "delta", 1, rescorer=rescorer)
        assert hypotheses.tokens == [[]] * 4 and hypotheses.candidates == [1] * 4
    for row in range(4):
        # The teacher's probability of ending at once.
        source = one(batch, row).source
        hidden = teacher.hidden(teacher.encode(source), torch.zeros(1, 0, dtype=torch.int64))
        expected = teacher.logits(hidden)[0, -1].log_softmax(-1)[EOS].item()
        assert hypotheses.scores[row] == pytest.approx(expected, abs=1e-12)


def test_lengthening_makes_all_candidates_longer(batch):
    """Two fifths of 4, 1, 6 and 2 words and two symbols each are 2.4, 1.2, 3.2 and 1.6."""
    model = lvm()
    with torch.no_grad():
        model.length.outer.bias[-1] += 100
    predicted = model.length.predict(model.encode(batch.source))
    plan = {"lengths": 1, "samples": 2, "search_seed": 7, "lengthening": 0.4}
    hypotheses = run(model, batch.source, "delta", 1, plan)
    assert [len(words) for words in hypotheses.tokens] == (predicted + torch.tensor([2, 1, 3, 1])).tolist()


def test_the_seed_decides_the_samples(model, batch):
    first = run(model, batch.source, "prior-mean", 0)
    assert run(model, batch.source, "prior-mean", 0).tokens == first.tokens
    plans = [PLAN | {"search_seed": seed} for seed in range(8, 12)]
    other_scores = [run(model, batch.source, "prior-mean", 0, plan).scores for plan in plans]
    assert any(scores != first.scores for scores in other_scores)


def test_one_length_and_the_mean_alone_is_the_plain_search(model, batch):
    plan = {"lengths": 1, "samples": 1, "mean_first": True}
    for search, steps in (("prior-mean", 0), ("delta", 2), ("score", 2)):
        plain = translate(model, batch.source, search, steps, refiner=network(search))
        hypotheses = run(model, batch.source, search, steps, plan)
        assert hypotheses.tokens == plain.tokens
        assert hypotheses.scores == pytest.approx(plain.scores, abs=1e-12)


def test_likely_lengths_differ_from_each_other_also_for_the_shortest_sentences(model, batch):
    memory = model.encode(batch.source)
    count = 9
    for row, lengths in enumerate(model.length.likely(memory, count).tolist()):
        source_length = int(batch.source_mask[row].sum()) - 1
        expected = by_hand_lengths(model, memory.select(torch.tensor([row])), source_length)
        assert lengths == expected[:count] + expected[:1] * (count - len(expected))
        assert len(set(lengths)) == min(count, len(expected))


def test_candidates_leave_the_rescorer_room_for_its_end_symbol(model):
    """The longest source a bundle takes: predicted lengths reach all positions, which the end symbol must share."""
    longest = model.config.max_positions - 1
    source = pairs([longest], [3]).source
    hypotheses = run(model, source, "delta", 0, {"lengths": 5, "samples": 1, "search_seed": 7}, rescorer=transformer())
    assert 1 <= len(hypotheses.tokens[0]) <= transformer().config.max_positions - 1
    # A model with end symbols may put out a word more than the length.
    model = ending()
    with torch.no_grad():
        model.length.outer.bias[-1] += 100
        model.output_bias[EOS] -= 1000
    hypotheses = run(model, source, "delta", 0, {"lengths": 1, "samples": 1, "search_seed": 7}, rescorer=transformer())
    assert len(hypotheses.tokens[0]) == transformer().config.max_positions - 1


def test_noise_is_standard_normal_and_follows_from_the_sentence_and_the_seed():
    drawn = prior_noise([5, 6, EOS], 200, 50, 4, seed=3)
    assert abs(float(drawn.mean())) < 0.02 and abs(float(drawn.std()) - 1) < 0.02
    assert torch.equal(drawn, prior_noise([5, 6, EOS], 200, 50, 4, seed=3))
    assert torch.equal(drawn[:, :20], prior_noise([5, 6, EOS], 200, 20, 4, seed=3))
    assert not torch.equal(drawn, prior_noise([5, 7, EOS], 200, 50, 4, seed=3))
    assert not torch.equal(drawn, prior_noise([5, 6, EOS], 200, 50, 4, seed=4))
    # Samples are independent of each other.
    assert abs(float((drawn[0] * drawn[1]).mean())) < 0.2


class Contraction(Refiner):
    """A field that moves every sentence towards 0 by the same factor a step."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def direction(self, _memory, z, _mask, differentiable=False):
        del differentiable
        return -self.rate * z


@pytest.mark.parametrize("threshold", [1e-6, 1e-3, 0.05, 0.2])
def test_sentences_stop_when_their_step_is_short(model, batch, threshold):
    """With z' = (1 - r) z the length of step k is (1 - r)^(k-1) r mean|z0|: the number of steps has a closed form."""
    rate, most = 0.5, 12
    hypotheses = translate(
        model, batch.source, "score", most, refiner=Contraction(rate), trace=True, stop_threshold=threshold
    )
    memory = model.encode(batch.source)
    mask = length_mask(model.length.predict(memory))
    with torch.no_grad():
        start = (model.prior(memory, mask)[0].norm(dim=-1) * mask).sum(1) / mask.sum(1)
    for row in range(4):
        lengths = [float(start[row]) * rate * (1 - rate) ** step for step in range(most)]
        short = [step + 1 for step, value in enumerate(lengths) if value < threshold]
        assert hypotheses.steps[row] == (short[0] if short else most)
        plain = translate(model, one(batch, row).source, "score", hypotheses.steps[row], refiner=Contraction(rate))
        assert plain.tokens[0] == hypotheses.tokens[row]
        assert plain.scores[0] == pytest.approx(hypotheses.scores[row], abs=1e-12)
