"""Latents, masks, glancing, corruption and sampled guesses draw random numbers: interrupted training is uninterrupted
training there too."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from killed import Killed, killed_after

from workflow_src.data.batching import epoch_batches
from workflow_src.families.build import build_objective

pytestmark = pytest.mark.usefixtures("without_rehearsal")


@pytest.mark.parametrize(
    "family, model, objective",
    [
        ("nat", {"latent": "vae", "dropout": 0.1}, {"glance": "glat"}),
        ("nat", {"dropout": 0.1}, {"ngrams": 2}),
        ("nat", {"loss": "axe", "latent": "vae", "dropout": 0.1}, {"glance": "random"}),
        ("nat", {"loss": "ce", "dropout": 0.1}, {"glance": "glat", "glance_count": "share", "glance_share": 1.0}),
        ("cmlm", {"dropout": 0.1}, {}),
        ("seq2seq", {"dropout": 0.1}, {}),
        ("tagger", {"dropout": 0.1}, {}),
        ("inat", {"dropout": 0.1}, {}),
        ("inat", {"dropout": 0.1}, {"guess": "sample", "passes": 3}),
        ("lanmt", {"dropout": 0.1}, {"budget_hold": 0.2, "budget_until": 0.9}),
    ],
)
def test_interrupted_is_bit_equal_to_uninterrupted(make_trainer, compare, family, model, objective):
    settings = {"max_steps": 12, "accumulate": 2, "save_every": 3, "model": model, "objective": objective}
    straight = make_trainer(family, **settings)
    straight.run()
    stopped = make_trainer(family, state="one", wrap=killed_after(14), **settings)
    with pytest.raises(Killed):
        stopped.run()
    torch.manual_seed(99)
    going_on = make_trainer(family, state="one", **settings)
    going_on.run()
    assert 0 < stopped.progress.step < 12 and compare.equal(straight.model, going_on.model)


def test_the_share_of_targets_out_of_reach_is_that_of_training_pairs(make_trainer, tiny):
    """Batches have as many tokens, so that one of long sentences has fewer pairs than another."""
    longest = int(np.median(tiny.train.target_lengths))
    inner = build_objective("nat", {})

    def with_unreachable(network, batch, context):
        out_of_reach = batch.target_lengths > longest
        figures = {"unreachable": (out_of_reach.sum(), len(out_of_reach))}
        return dataclasses.replace(inner(network, batch, context), figures=figures)

    batches = epoch_batches(tiny.train, 120, 1, 0)
    updates = len(batches) // 2
    settings = {"batch_tokens": 240, "accumulate": 2, "max_steps": updates, "validate_every": updates, "keep": "last"}
    (entry,) = make_trainer("nat", wrap=lambda _: with_unreachable, **settings).run().history
    shares = [tiny.train.target_lengths[rows] > longest for rows in batches[: 2 * updates]]
    assert entry["unreachable"] == pytest.approx(np.mean(np.concatenate(shares)), rel=1e-9)
    assert entry["unreachable"] != pytest.approx(np.mean([np.mean(share) for share in shares]), rel=1e-3)


@pytest.mark.parametrize("share", [0.0, 0.997])
def test_targets_that_no_alignment_reaches_are_warned_of_once(make_trainer, caplog, share):
    inner = build_objective("nat", {})

    def with_unreachable(network, batch, context):
        terms = inner(network, batch, context)
        return dataclasses.replace(terms, figures=terms.figures | {"unreachable": share})

    trainer = make_trainer("nat", max_steps=4, validate_every=2, wrap=lambda _: with_unreachable)
    with caplog.at_level("WARNING"):
        trainer.run()
    shares = [entry["unreachable"] for entry in trainer.progress.history if "unreachable" in entry]
    assert shares == pytest.approx([share, share])
    warned = [record.getMessage() for record in caplog.records if "cannot be reached" in record.getMessage()]
    beginning = "warning: 99.7 % of the training pairs cannot be reached: their targets are longer than what the model"
    assert len(warned) == (share > 0) and all(text.startswith(beginning) for text in warned)
