from __future__ import annotations

import pytest
import torch
from miniatures import decode, ending, lvm, one, padded, pairs, refiner, search, translate

from workflow_src.decoding.refinement import delta_step
from workflow_src.nn.models import Refiner
from workflow_src.types import EOS, PAD

SEARCHES = [("prior-mean", 0), ("delta", 3), ("score", 3), ("energy", 3)]


@pytest.fixture(scope="module")
def model():
    return lvm()


@pytest.fixture(scope="module")
def batch():
    return pairs([4, 1, 6, 2], [3, 5, 1, 4])


def network(name: str):
    return refiner(name) if name in ("score", "energy") else None


def run(model, source, name, steps, **options):
    return translate(model, source, name, steps, refiner=network(name), **options)


class Field(Refiner):
    """The score of a Gaussian of deviation 1 around `centre`."""

    def __init__(self, centre):
        super().__init__()
        self.centre = centre

    def direction(self, _memory, z, _mask, differentiable=False):
        del differentiable
        return self.centre - z


@torch.no_grad()
def naive(model, source, name, steps, step_size=1.0, end=False):
    """One sentence, by the algorithms as written; with `end` there is one more latent, and outputs have end symbols."""
    memory = model.encode(source)
    length, first_symbol = int(model.length.predict(memory)) + end, 2 if end else 3
    mask = torch.ones(1, length, dtype=torch.bool)
    z = model.prior(memory, mask)[0]
    outputs = []
    for step in range(steps + 1):
        logits = decode(model, memory, z, mask)
        outputs.append([int(row[first_symbol:].argmax()) + first_symbol for row in logits[0]])
        if step == steps:
            break
        if name == "delta":
            z = model.posterior(memory, torch.tensor([outputs[-1]]), mask)[0]
        else:
            z = z + step_size * network(name).direction(memory, z, mask)
    return outputs


@pytest.mark.parametrize("search, steps", SEARCHES)
def test_translations_are_those_of_the_algorithm_one_sentence_at_a_time(model, batch, search, steps):
    """Padding and the other sentences of a batch change nothing, and every step is that of the papers."""
    batched = run(model, batch.source, search, steps, trace=True)
    wider = run(model, padded(batch).source, search, steps)
    assert wider.tokens == batched.tokens == batched.traces[-1] and wider.traces is None
    assert wider.scores == pytest.approx(batched.scores, abs=1e-12)
    assert batched.steps == [steps] * 4
    for row in range(4):
        single = one(batch, row).source
        alone = run(model, single, search, steps)
        assert alone.tokens[0] == batched.tokens[row]
        assert alone.scores[0] == pytest.approx(batched.scores[row], abs=1e-12)
        assert [step[row] for step in batched.traces] == naive(model, single, search, steps)


def without_ends(rows):
    return [[token for token in row if token != EOS] for row in rows]


@pytest.mark.parametrize("search, steps", SEARCHES)
def test_end_symbols_are_dropped_wherever_they_stand_and_delta_reads_them(batch, search, steps):
    """Against the algorithm for one sentence, which keeps end symbols; padding and other sentences change nothing."""
    model = ending()
    batched = run(model, batch.source, search, steps, trace=True)
    wider = run(model, padded(batch).source, search, steps)
    assert wider.tokens == batched.tokens
    assert wider.scores == pytest.approx(batched.scores, abs=1e-12)
    outputs = []
    for row in range(4):
        single = one(batch, row).source
        outputs.append(naive(model, single, search, steps, end=True))
        assert [step[row] for step in batched.traces] == without_ends(outputs[-1])
        alone = run(model, single, search, steps)
        assert alone.tokens[0] == batched.tokens[row]
        assert alone.scores[0] == pytest.approx(batched.scores[row], abs=1e-12)
    # The test needs words behind an end symbol, and outputs with end symbols.
    assert any(EOS in words[:-1] and words[-1] != EOS for words in (step for steps in outputs for step in steps))


def test_a_position_may_stay_empty_and_so_may_all(batch):
    model = ending()
    with torch.no_grad():
        model.output_bias[EOS] += 1000
    for name, steps in SEARCHES:
        output = run(model, batch.source, name, steps, trace=True)
        assert output.tokens == [[]] * 4 and output.traces == [[[]] * 4] * (steps + 1)
        # The end symbol's own probability, which is nearly 1.
        assert output.scores == pytest.approx([0.0] * 4, abs=1e-12)


def test_where_the_end_symbol_is_due_a_word_may_come(batch):
    model = ending()
    with torch.no_grad():
        model.output_bias[EOS] -= 1000
    output = run(model, batch.source, "prior-mean", 0)
    predicted = model.length.predict(model.encode(batch.source)).tolist()
    assert [len(words) for words in output.tokens] == [length + 1 for length in predicted]


def test_scores_count_the_positions_of_end_symbols(batch):
    model = ending()
    output = run(model, batch.source, "prior-mean", 0)
    predicted = model.length.predict(model.encode(batch.source)).tolist()
    for row in range(4):
        memory = model.encode(one(batch, row).source)
        mask = torch.ones(1, predicted[row] + 1, dtype=torch.bool)
        with torch.no_grad():
            scores = decode(model, memory, model.prior(memory, mask)[0], mask)[0, :, EOS:].log_softmax(-1)
        best, tokens = scores.max(-1)
        assert output.scores[row] == pytest.approx(best.mean().item(), abs=1e-12)
        assert output.tokens[row] == [token + EOS for token in tokens.tolist() if token]


@pytest.mark.parametrize("name", ["delta", "score"])
@pytest.mark.parametrize("threshold", [1e-9, 0.3, 1.0])
def test_sentences_with_end_symbols_stop_by_themselves_as_they_do_alone(batch, name, threshold):
    """Steps are counted by hand over all positions, the end symbol's too."""
    model, most = ending(), 6
    output = run(model, batch.source, name, most, stop_threshold=threshold, trace=True)
    for row in range(4):
        single = one(batch, row).source
        memory = model.encode(single)
        mask = torch.ones(1, int(model.length.predict(memory)) + 1, dtype=torch.bool)
        step = search(name, model, 1.0, network(name)).moved
        with torch.no_grad():
            z, lengths = model.prior(memory, mask)[0], []
            while len(lengths) < most and (not lengths or lengths[-1] >= threshold):
                previous, z = z, step(memory, z, mask)
                lengths.append(float((z - previous).norm(dim=-1).mean()))
        steps = len(lengths)
        assert output.steps[row] == steps
        plain = run(model, single, name, steps)
        assert output.tokens[row] == plain.tokens[0] == output.traces[-1][row]
        assert output.scores[row] == pytest.approx(plain.scores[0], abs=1e-12)


@pytest.mark.parametrize("search", ["delta", "score", "energy"])
def test_no_steps_is_the_prior_mean(model, batch, search):
    plain = run(model, batch.source, "prior-mean", 0)
    none = run(model, batch.source, search, 0, trace=True)
    assert none.tokens == plain.tokens and none.scores == plain.scores
    assert none.traces == [plain.tokens]


def test_refinement_changes_some_translation(model, batch):
    """Otherwise the tests above would compare equal outputs."""
    plain = run(model, batch.source, "prior-mean", 0).tokens
    for name in ("delta", "score", "energy"):
        assert run(model, batch.source, name, 3, step_size=30.0).tokens != plain, name


def test_a_delta_step_is_the_posterior_mean_of_the_best_words(model, batch):
    memory, mask = model.encode(batch.source), batch.target_mask
    z = torch.randn(4, 5, 3, dtype=torch.float64)
    with torch.no_grad():
        words = (decode(model, memory, z, mask)[..., 3:].argmax(-1) + 3).masked_fill(~mask, PAD)
        posterior_mean = model.posterior(memory, words, mask)[0]
        assert torch.equal(delta_step(model, memory, z, mask), posterior_mean)


@pytest.mark.parametrize("step_size", [0.25, 0.5, 1.0])
def test_gradient_steps_follow_an_analytic_field(model, step_size):
    """With s = centre - z, the distance after L steps is (1 - step_size) ** L times the first one."""
    z, centre = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    step = search("score", model, step_size, Field(centre)).moved
    for steps in (0, 1, 5):
        refined = z
        for _ in range(steps):
            refined = step(None, refined, None)
        assert torch.allclose(refined - centre, (1 - step_size) ** steps * (z - centre), atol=1e-14)


def test_step_size_reaches_the_search(model, batch):
    """A field that points to the posterior mean of other words: one whole step lands there, half a step does not."""
    memory = model.encode(batch.source)
    lengths = batch.target_lengths
    with torch.no_grad():
        centre = model.posterior(memory, batch.target, batch.target_mask)[0]
        words = (decode(model, memory, centre, batch.target_mask)[..., 3:].argmax(-1) + 3).tolist()
        output = translate(model, batch.source, "score", 1, 1.0, refiner=Field(centre), lengths=lengths)
        half = translate(model, batch.source, "score", 1, 1e-9, refiner=Field(centre), lengths=lengths)
    assert output.tokens == [row[:length] for row, length in zip(words, lengths.tolist(), strict=True)]
    assert half.tokens == translate(model, batch.source, "prior-mean", lengths=lengths).tokens


def test_scores_are_the_mean_log_probability_of_the_words(model, batch):
    output = run(model, batch.source, "prior-mean", 0)
    for row in range(4):
        memory = model.encode(one(batch, row).source)
        mask = torch.ones(1, len(output.tokens[row]), dtype=torch.bool)
        with torch.no_grad():
            logits = decode(model, memory, model.prior(memory, mask)[0], mask)[0]
        scores = logits[:, EOS + 1 :].log_softmax(-1)
        chosen = scores.gather(1, torch.tensor(output.tokens[row])[:, None] - EOS - 1)
        assert output.scores[row] == pytest.approx(chosen.mean().item(), abs=1e-12)


@pytest.mark.parametrize("end", [False, True])
def test_special_symbols_are_never_words(end):
    model = lvm(end_symbol=end)
    with torch.no_grad():
        model.output_bias[: EOS + 1 - end] += 100
    batch = pairs([4, 2], [3, 5])
    for name, steps in SEARCHES:
        output = run(model, batch.source, name, steps, trace=True)
        for words in [*output.tokens, *(row for step in output.traces for row in step)]:
            assert all(token > EOS for token in words) and PAD not in words


def test_given_lengths_replace_the_predicted_ones(model, batch):
    lengths = torch.tensor([2, 7, 1, 3])
    output = run(model, batch.source, "delta", 1, lengths=lengths)
    assert [len(words) for words in output.tokens] == lengths.tolist()
    predicted = model.length.predict(model.encode(batch.source))
    assert [len(words) for words in run(model, batch.source, "delta", 1).tokens] == predicted.tolist()


def test_lengthening_adds_its_share_of_the_sources_length(model, batch):
    """Sources of 4, 1, 6 and 2 words: with both special symbols, a quarter of them is 1, 0, 2 and 1."""
    for model in (lvm(), ending()):
        with torch.no_grad():
            # So that no length is raised to 1.
            model.length.outer.bias[-1] += 100
        lengths = model.length.predict(model.encode(batch.source))
        assert lengths.tolist() == [8, 5, 10, 6]
        expected = run(model, batch.source, "delta", 1, lengths=lengths + torch.tensor([1, 0, 2, 1]))
        longer = run(model, batch.source, "delta", 1, lengthening=0.25)
        assert longer.tokens == expected.tokens and longer.scores == expected.scores


def test_without_scores_the_tokens_are_the_same():
    source = pairs([3, 6, 1], [2, 2, 2]).source
    scored, bare = (translate(lvm(), source, "delta", 2, scored=flag) for flag in (True, False))
    assert scored.tokens == bare.tokens and bare.scores == [0.0] * 3 and all(score < 0 for score in scored.scores)
