"""Stopping at the first step that does not change the output: results are those of all steps."""

from __future__ import annotations

import pytest
import torch
from miniatures import ending, lanmt, lvm, nat, one, padded, pairs, translate
from refusals import fields_of

from workflow_src.errors import ConfigError
from workflow_src.evaluation.labels import words
from workflow_src.registry import searches
from workflow_src.spec import parse

MODELS = {
    "lvm": lambda: lvm(seed=2),
    "lvm with end symbols": lambda: ending(),
    "lanmt": lambda: lanmt(seed=3),
    "nat": lambda: nat(latent="vae", latent_dim=3, seed=5),
}
MOST = 12


def batch():
    return pairs([4, 1, 6, 2, 7, 5], [3, 5, 1, 4, 2, 2])


def first_unchanged(trace) -> int:
    """Steps up to the first that changed nothing, of the outputs of one sentence after each step."""
    return next((t for t in range(1, len(trace)) if trace[t] == trace[t - 1]), len(trace) - 1)


@pytest.mark.parametrize("kind", MODELS)
def test_it_is_the_unstopped_result_and_counts_the_steps_to_it(kind):
    model, source = MODELS[kind](), batch().source
    unstopped = translate(model, source, "delta", MOST, trace=True)
    stopped = translate(model, source, "delta", MOST, trace=True, stop_unchanged=True)
    assert stopped.tokens == unstopped.tokens and stopped.traces == unstopped.traces
    assert stopped.scores == pytest.approx(unstopped.scores, abs=1e-12)
    if kind != "lvm with end symbols":
        # There, end symbols may move and leave the words alone.
        assert stopped.steps == [first_unchanged([step[row] for step in unstopped.traces]) for row in range(6)]
    # The test needs sentences that stop at different steps, and some that change.
    assert len(set(stopped.steps)) > 1 and unstopped.traces[0] != unstopped.tokens


@pytest.mark.parametrize("kind", ["lvm", "lanmt"])
def test_given_lengths_hold_for_sentences_that_go_on(kind):
    model, sentences = {"lvm": lvm, "lanmt": lanmt}[kind](seed=3), batch()
    lengths = torch.tensor([2, 7, 3, 5, 1, 6])
    batched = translate(model, sentences.source, "delta", MOST, lengths=lengths, stop_unchanged=True)
    unstopped = translate(model, sentences.source, "delta", MOST, lengths=lengths)
    assert batched.tokens == unstopped.tokens and len(set(batched.steps)) > 1
    if kind == "lvm":
        assert [len(tokens) for tokens in batched.tokens] == lengths.tolist()


@pytest.mark.parametrize("kind", MODELS)
def test_batching_and_padding_change_nothing(kind):
    model, sentences = MODELS[kind](), batch()
    batched = translate(model, sentences.source, "delta", MOST, stop_unchanged=True)
    wider = translate(model, padded(sentences).source, "delta", MOST, stop_unchanged=True)
    assert (wider.tokens, wider.steps) == (batched.tokens, batched.steps)
    for row in range(6):
        alone = translate(model, one(sentences, row).source, "delta", MOST, stop_unchanged=True)
        assert (alone.tokens[0], alone.steps[0]) == (batched.tokens[row], batched.steps[row])
        assert alone.scores[0] == pytest.approx(batched.scores[row], abs=1e-12)


def test_no_sentence_takes_more_than_the_most():
    stopped = translate(lanmt(seed=3), batch().source, "delta", 1, stop_unchanged=True, trace=True)
    unstopped = translate(lanmt(seed=3), batch().source, "delta", 1, trace=True)
    assert stopped.steps == [1] * 6 and stopped.tokens == unstopped.tokens and stopped.traces == unstopped.traces


def test_without_scores_they_are_nothing():
    stopped = translate(lanmt(), batch().source, "delta", 3, stop_unchanged=True, scored=False)
    assert stopped.scores == [0.0] * 6


def test_settings_say_it_once():
    settings = searches()["delta"].settings
    assert settings(steps=3, stop_unchanged=True).name_parts() == "-3-still"
    # Names of rows show the setting.
    assert words({"stop_unchanged": True, "length_quantile": 0.6}) == "stop unchanged, length quantile 0.6"
    assert (
        words({"samples": 1234567, "weight": 0.1234567, "bonus": 3.0}) == "samples 1234567, weight 0.1234567, bonus 3"
    )
    off = {"stop_unchanged": False, "stop_threshold": None}
    assert (
        words(off) == "no stop unchanged, no stop threshold" and words(off, False) == "stop unchanged, stop threshold"
    )
    with pytest.raises(ConfigError) as refused:
        parse(settings, {"steps": 3, "stop_unchanged": True, "stop_threshold": 0.1}, "")
    fields = {"setting": "stop_threshold", "value": 0.1, "mentions": ("stop_unchanged",)}
    assert fields_of(refused.value, fields) == fields
    assert searches()["delta"].varies(settings(steps=3, stop_unchanged=True)) == "with stop_unchanged"


def test_it_decodes_no_more_often_than_the_paper_counts():
    """One output before the first step, and one after each (Shu et al. 2020, section 6)."""
    model, calls = lanmt(seed=3), []
    read = model.read
    model.read = lambda *args: calls.append(1) or read(*args)
    with torch.no_grad():
        steps = translate(model, batch().source, "delta", MOST, stop_unchanged=True).steps
    assert len(calls) == max(steps) + 1
