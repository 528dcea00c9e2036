"""The pairs that a system learns from, and the numbers of updates that follow from them."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from workflow_src.config.resolved import System
from workflow_src.config.texts import weights_of
from workflow_src.config.training import TrainingConfig
from workflow_src.data.drops import notable, warn_of_losses
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.mixture import Mixture
from workflow_src.errors import ArtifactError

if TYPE_CHECKING:
    from workflow_src.data.batching import Pairs

log = logging.getLogger("continuum")


@dataclasses.dataclass(frozen=True)
class TrainingPairs:
    """The pairs that a model learns from: `corpus` is the only text, or the `mixture` of several.

    `without_positions` counts the pairs that are too long for the model.
    """

    corpus: Pairs
    mixture: Mixture
    without_positions: int


def training_pairs(texts: list[EncodedCorpus], settings: System, positions: int) -> TrainingPairs:
    """The pairs of training texts that a model with so many positions reads."""
    readable = _readable(texts, positions, settings.name)
    weights = weights_of(settings.data)
    mixture = Mixture(dict(zip(weights, readable, strict=True)), weights)
    mixture.verify()
    corpus: Pairs = readable[0] if isinstance(settings.data, str) else mixture
    if settings.reversed:
        corpus = readable[0].reversed()
    return TrainingPairs(corpus, mixture, without_positions=sum(map(len, texts)) - len(mixture))


def _readable(texts: list[EncodedCorpus], positions: int, system: str) -> list[EncodedCorpus]:
    """The pairs of training texts that a model with so many positions reads; logs how many it cannot.

    Raises ArtifactError where it reads none of a text.
    """
    readable = [text.up_to(positions - 1) for text in texts]
    for text, part in zip(texts, readable, strict=True):
        too_long = len(text) - len(part)
        problem = f"over the {positions - 1} subwords that {system} has positions for"
        fix = "raise model.max_positions, or lower recipe.max_length"
        if too_long and not len(part):
            raise ArtifactError(text.prefix, f"has only pairs {problem}", fix)
        if too_long and not notable({problem: too_long}, len(text)):
            log.info("%s: %d of %d pairs are left out, %s", text.prefix, too_long, len(text), problem)
        warn_of_losses(text.prefix, {problem: too_long}, len(text), fix)
    return readable


def sized(training: TrainingConfig, corpus: Pairs, seed: int, processes: int = 1) -> TrainingConfig:
    """The settings of a training with the numbers of updates that follow from its pairs."""
    from workflow_src.data.batching import epoch_batches

    if isinstance(training.max_steps, int):
        return training.sized(corpus.epoch_tokens)
    tokens = training.part_tokens(processes)
    parts = epoch_batches(corpus, tokens, seed, 0, rows=corpus.epoch_rows(seed, 0))
    batches = len(parts) / training.parts(processes)
    config = training.sized(corpus.epoch_tokens, batches)
    log.info(
        "max_steps: %d updates; an epoch has %.6g; %d of warm-up, a validation every %d",
        config.max_steps,
        batches,
        config.warmup_steps,
        config.validate_every,
    )
    return config


def texts_words(counts: Mapping[str, Mapping[str, float]]) -> str:
    """Texts of a mixture in words."""
    texts = (
        f"{name} {text['pairs']:,} pairs, {text['pairs_an_epoch']:,.12g} of them an epoch (weight {text['weight']:g})"
        for name, text in counts.items()
    )
    return f"texts: {'; '.join(texts)}"
