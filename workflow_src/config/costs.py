"""Sizes that work depends on, and bounds of weights and operations by settings alone. No torch here.

Requests to a cluster are such bounds; hours are counted by PyTorch (`cli/operations.py`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from workflow_src.config.datasets import TEST
from workflow_src.config.plan import Plan
from workflow_src.config.resolved import System
from workflow_src.config.sizes import AUTO, HIGHEST_MAX_LENGTH, LOWEST_MAX_LENGTH, sized_number
from workflow_src.config.texts import MONOLINGUAL
from workflow_src.spec import Family, check_beams

# From this width on, a GPU's products are large enough for its higher rates.
WIDE = 512
# The GPU that hours are of, its operations a second at most, and the shares of them that are reached: in training by
# width of the model, and in decoding, whose products are small.
GPU, PEAK = "NVIDIA A100 in bfloat16", 312e12
WIDE_TRAINING, NARROW_TRAINING, DECODING = (0.10, 0.40), (0.03, 0.15), (0.003, 0.05)
# Defaults; the numbers of an experiment or of its encoded corpus win.
HELD_OUT = 2000
LENGTH = {"generated": 12.0, "files": 28.0, "folder": 28.0}
# The longest sentences in training, in means.
LONGEST = 5


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of a corpus that work depends on.

    `pairs` for training, None where unknown; `length`, mean subwords of a sentence; `monolingual`, lines of text of the
    source language, None where unknown; `characters`, distinct ones of a vocabulary's text, as far as these are known.
    """

    pairs: int | None
    length: float
    monolingual: int | None = None
    characters: int = 0

    def sentences(self, text: str) -> int | None:
        """Number of sentences; an unknown monolingual count is taken as that of pairs."""
        return self.monolingual or self.pairs if text == MONOLINGUAL else self.pairs


def gpu_rates(system: System, training: bool) -> tuple[float, float]:
    """Operations a second of one GPU with a system, at least and at most."""
    wide = getattr(system.model, "dim", 0) >= WIDE
    low, high = (WIDE_TRAINING if wide else NARROW_TRAINING) if training else DECODING
    return PEAK * low, PEAK * high


def held_out(plan: Plan, split: str) -> int:
    """Sentences of dev or of a test set: as configured, else assumed."""
    dataset, split = plan.loaded.dataset, split if split == "dev" else TEST
    cut = getattr(dataset.split, split, None) if dataset.split else None
    limits = {str(name): number for name, number in plan.recipe.limits.items()}
    return limits.get(split) or getattr(dataset.generated, split, None) or cut or HELD_OUT


def layers(family: Family, model: Any, objective: Any = None) -> float:
    """Layers that an update goes through, each as often as a position is computed by it, by the settings of a model and
    of its objective; without these, layers of the network."""
    if family.layers:
        return family.layers(model, objective)
    return sum(value for name, value in model if name.endswith("layers"))


def most_weights(family: Family, model: Any, vocabulary: int, objective: Any = None) -> float:
    """Weights by the settings of a model, rather too many: of `layers`, each as a decoder's, and of two matrices of the
    vocabulary."""
    if family.weights:
        return sum(family.weights(model).values())
    if family.fit:
        return 0.0
    return layers(family, model, objective) * _layer_weights(model) + 2 * vocabulary * width(model)


def _layer_weights(model: Any) -> int:
    dim = width(model)
    # Recurrent layers, which read both directions, have more weights than feed-forward layers of the usual width.
    inner = getattr(model, "feed_forward", 8 * dim)
    return 8 * dim * dim + 2 * dim * inner


def positions(family: Family, model: Any) -> float:
    """Positions of the decoder for a subword, by the settings of a model."""
    return family.positions(model) if family.positions else 1.0


def computed_layers(family: Family, model: Any, objective: Any = None) -> float:
    """`layers`, those of the decoder as often as it has positions for a subword."""
    further = positions(family, model) - 1
    return layers(family, model, objective) + (further * model.layers if further else 0)


def most_computed(family: Family, model: Any, vocabulary: int, objective: Any = None) -> float:
    """`most_weights`, those of the decoder and of the output projection as often as it has positions for a subword."""
    further = positions(family, model) - 1
    again = model.layers * _layer_weights(model) + vocabulary * width(model) if further else 0
    return most_weights(family, model, vocabulary, objective) + further * again


def width(model: Any) -> int:
    """Width of a model, or a usual one where its settings have none, as those of models made elsewhere."""
    return getattr(model, "dim", WIDE)


def feed_forward(model: Any) -> int:
    """Width of a model's feed-forward layers; four times its width where its settings have none."""
    return getattr(model, "feed_forward", 4 * width(model))


def updates(system: System) -> int:
    """Updates of a training in a plan without auto (`sized`)."""
    return sized_number(system.training.max_steps)


def check(plan: Plan) -> None:
    """Raises ConfigError for a beam of more hypotheses than the vocabulary has subwords."""
    vocabulary = sized(plan, Sizes(pairs=1, length=1)).recipe.subwords.size
    for decode in plan.loaded.decodes:
        for settings in decode.combinations:
            check_beams(settings, vocabulary, f"decode {decode.system}/{decode.name}")
    for teacher in plan.teachers:
        check_beams(plan.distillation(teacher).search_settings(), vocabulary, f"distillation.{teacher}")


def sized(plan: Plan, sizes: Sizes) -> Plan:
    """The plan with numbers in place of auto, for a corpus of these sizes."""
    pairs = sizes.pairs or 1
    tokens, monolingual_tokens = (round(count * (sizes.length + 1)) for count in (pairs, sizes.monolingual or pairs))
    return Plan(plan.loaded.sized(pairs, tokens, monolingual_tokens, sizes.characters))


def sentence_length(plan: Plan, length: float | None = None) -> float:
    """Mean subwords of a sentence: `length`, or that of the dataset, or the default for such a dataset."""
    dataset, limit = plan.loaded.dataset, plan.recipe.max_length
    length = length or dataset.sentence_length or LENGTH[dataset.kind]
    return length if limit == AUTO else min(length, limit)


def longest_sentence(plan: Plan, length: float) -> int:
    """Subwords of the longest sentences in training: as configured, else assumed by the mean `length`."""
    limit = plan.recipe.max_length
    return limit if limit != AUTO else round(min(max(LONGEST * length, LOWEST_MAX_LENGTH), HIGHEST_MAX_LENGTH))


def raw_pairs(plan: Plan, pairs: int | None = None) -> int | None:
    """Training pairs before the recipe's limit: `pairs`, or those of the dataset; None where neither is known."""
    dataset = plan.loaded.dataset
    return pairs or getattr(dataset.generated, "train", None) or dataset.pairs


def training_pairs(plan: Plan, pairs: int | None = None) -> int | None:
    """Training pairs: `raw_pairs`, cut to the recipe's limit."""
    count = raw_pairs(plan, pairs)
    limit = plan.recipe.limits.get("train")
    return min(count, limit) if count and limit else count
