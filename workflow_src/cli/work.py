"""Floating-point operations of single jobs, the hours that they take, on a GPU or on one core, and disk. No torch here.

Floating-point operations are counted as two for each weight of a matrix product and each position that it is applied
to; attention's own products (a few per cent at sentence lengths), embeddings, norms and the length head are left out.
A backward pass costs twice its forward pass:

    training a teacher or a latent-variable model    6 N_p     a position and update
    a score network                                  6 N_p     and the goal of frozen steps before it, 2 N_p each
    an energy network                               12 N_p     its direction is itself a gradient: forward and backward
                                                               to the latents (4), and a backward pass through both (8)
    an inference network                             6 N_p     and its frozen energy: 2 N_p of the encoder, forward and
                                                               back to what it reads 4 of the decoder, 8 of the output
    beam search                                      2 N_p     a position and hypothesis
    non-autoregressive decoding                      2 N_p     a position and step; an energy step 4

where N_p are the weights that the part in question multiplies with. Core-hours divide that by rates that were measured
on this machine (`calibration.py`). GPU-hours divide it by a range of rates of one A100 (312e12 operations a second in
bfloat16 at most): training reaches 10 to 40 % of it at width 512 and more and 3 to 15 % below, decoding 0.3 to 5 %,
because its products are small.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workflow_src.cli.calibration import Rates
from workflow_src.cli.texts import first_pairs, subword_lengths
from workflow_src.config.costs import (
    HELD_OUT,
    WIDE,
    decode_operations,
    decoding_operations,
    operations_a_position,
    parameters,
    scoring_operations,
    sentence_length,
    sized,
    training_pairs,
    updates,
    vocabulary_size,
)
from workflow_src.config.datasets import TEST
from workflow_src.config.plan import Plan
from workflow_src.config.sizes import AUTO, max_length
from workflow_src.config.texts import MONOLINGUAL
from workflow_src.data.cleaning import clean, steps_of
from workflow_src.data.corpus import count_training_pairs, monolingual_lines
from workflow_src.data.drops import NOTABLE
from workflow_src.errors import ArtifactError, ConfigError, InputError
from workflow_src.records.atomic import read_json
from workflow_src.spec import Pair

BYTES_A_SUBWORD = 4.5
# Training pairs whose subwords are counted before the corpus is encoded.
SAMPLED = 20_000
PEAK = 312e12
GPU = "NVIDIA A100 in bfloat16"
TRAINING_SHARE = {"wide": (0.10, 0.40), "narrow": (0.03, 0.15)}
DECODING_SHARE = (0.003, 0.05)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of the corpus that work depends on, and the source of each number.

    `pairs` for training, None where unknown; `length`, mean subwords of a sentence; `sources` of both. `monolingual`:
    lines of text of the source language, where these are known.
    """

    pairs: int | None
    length: float
    sources: Mapping[str, str]
    monolingual: int | None = None
    # max_length and the share of pairs beyond it, where a text was sampled or encoded (`length_limit`).
    limit: Mapping[str, Any] | None = None

    def sentences(self, split: str) -> int | None:
        """Number of sentences; an unknown monolingual count is taken as that of pairs."""
        return self.monolingual or self.pairs if split == MONOLINGUAL else self.pairs


@dataclasses.dataclass(frozen=True)
class Work:
    """Operations of training a system or of decoding with it. None: the number of training pairs is not known."""

    system: str
    training: bool
    operations: float | None
    # Target positions, with padding in training.
    tokens: float | None = None
    # Whether the time of such a job is known from one that ran.
    measured: bool = False


def own_pairs(plan: Plan) -> int | None:
    """Pairs of the user's own training texts, less those that become dev and test; None where a text is not there."""
    dataset = plan.loaded.dataset
    pairs = count_training_pairs(dataset, (plan.recipe.source, plan.recipe.target))
    cut = dataset.split.dev + dataset.split.test if dataset.split else 0
    return max(1, pairs - cut) if pairs else None


def sizes(
    plan: Plan, pairs: int | None = None, length: float | None = None, encoded: Mapping[str, Any] | None = None
) -> Sizes:
    """Sizes by `pairs` and `length`, else as encoding counted them, else by the texts themselves, else assumed.

    `encoded` is the description of the encoded training pairs. Without it, pairs are the lines of the user's own texts
    or those that the dataset states, and lengths are those of the first pairs, where these are on this machine. Of
    these, pairs that filters leave out are not counted.
    """
    counted = (encoded["pairs"], mean_length(encoded)) if encoded else (None, None)
    lines = None if pairs or encoded else own_pairs(plan)
    origins = ("counted", "counted") if encoded else ("stated by the dataset", "assumed")
    sources = {"pairs": "given" if pairs else origins[0], "length": "given" if length else origins[1]}
    if lines:
        sources["pairs"] = "lines of your texts"
    estimated = not pairs and not encoded
    pairs = training_pairs(plan, pairs or counted[0] or lines)
    sample = Sample() if encoded or not pairs else sampled(plan, pairs)
    if estimated and pairs and plan.loaded.cleaning:
        pairs = max(1, round(pairs * sample.kept))
        by = f"less what filters leave out of the first {sample.read:,} pairs" if sample.read else "before filters"
        sources["pairs"] = f"{sources['pairs']}, {by}"
    if sample.lengths and not length:
        length = sum(map(sum, sample.lengths)) / (2 * len(sample.lengths))
        sources["length"] = f"counted in the first {len(sample.lengths):,} pairs"
    length = sentence_length(plan, length or counted[1])
    longer_sides = tuple(map(max, sample.lengths))
    return Sizes(pairs, length, sources, monolingual_lines(plan), length_limit(plan, longer_sides, encoded))


def mean_length(encoded: Mapping[str, Any]) -> float:
    """Mean subwords of a sentence of both languages in the encoded corpus."""
    return (encoded["source_tokens"] + encoded["target_tokens"]) / (2 * encoded["pairs"])


def read_encoded(summary: Path) -> dict[str, Any]:
    """The description of encoded training pairs. Raises ArtifactError for a file that is none."""
    content: dict[str, Any] = read_json(summary)
    try:
        mean_length(content)
    except (KeyError, TypeError, ZeroDivisionError):
        raise ArtifactError(summary, "does not describe an encoded corpus", "encode it again, or delete it") from None
    return content


@dataclasses.dataclass(frozen=True)
class Sample:
    """The first training pairs: how many were read, the share that filters keep, and subwords of the kept pairs."""

    read: int = 0
    kept: float = 1.0
    lengths: Sequence[tuple[int, int]] = ()


def sampled(plan: Plan, pairs: int) -> Sample:
    """A sample of the training pairs; an empty one where these are generated, or not on this machine."""
    if plan.loaded.dataset.kind == "generated":
        return Sample()
    recipe = plan.recipe
    try:
        raw, _ = first_pairs(plan.loaded, SAMPLED)
        first = [Pair(pair.first, pair.second, pair.score) for pair in raw]
        steps = steps_of(plan.loaded.cleaning, (recipe.source, recipe.target), 0)
        kept = [pair for _, pair in clean(first, steps)] if plan.loaded.cleaning else first
        texts = [(pair.source, pair.target) for pair in kept]
        return Sample(len(first), len(kept) / len(first) if first else 1.0, subword_lengths(plan, texts, pairs))
    except InputError:
        # `check` and the job that reads them report the error.
        return Sample()


def length_limit(
    plan: Plan, longer_sides: Sequence[int], encoded: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """`limit`, the number of max_length, and `left_out`, the share of pairs beyond it.

    `longer_sides` has the subwords of the longer side of sampled pairs; `encoded` is what encoding counted. None
    without either.
    """
    setting = plan.recipe.max_length
    if encoded:
        dropped = encoded.get("dropped", {})
        beyond = sum(dropped.get(f"{side}-too-long", 0) for side in ("source", "target"))
        share = beyond / (encoded["pairs"] + sum(dropped.values()))
        return {"auto": setting == AUTO, "limit": encoded.get("max_length", setting), "left_out": share}
    if not longer_sides:
        return None
    limit = max_length(longer_sides) if setting == AUTO else setting
    beyond = sum(length > limit for length in longer_sides)
    return {"auto": setting == AUTO, "limit": limit, "left_out": beyond / len(longer_sides)}


def limit_in_words(limit: Mapping[str, Any]) -> str:
    """A line for readers, a warning where many pairs are left out."""
    number = f"comes to about {limit['limit']}" if limit["auto"] else f"is {limit['limit']}"
    line = f"max_length {number} subwords, and {100 * limit['left_out']:.1f} % of the training pairs are longer."
    return f"warning: {line} They are left out: raise recipe.max_length." if limit["left_out"] > NOTABLE else line


def automatic(plan: Plan) -> list[str]:
    """Settings that are auto and follow the corpus."""
    vocabulary = ["recipe.subwords.vocabulary_size"] if plan.recipe.subwords.vocabulary_size == AUTO else []
    steps = [name for name, s in plan.loaded.systems.items() if not isinstance(s.training.max_steps, int)]
    return [*vocabulary, *(f"systems.{name}.training.max_steps" for name in steps)]


def numbered(plan: Plan, sizes: Sizes) -> Plan:
    """The plan with numbers in place of auto. Raises ConfigError where the number of training pairs is not known."""
    settings = automatic(plan)
    if settings and sizes.pairs is None:
        problem = "the number of training pairs is not known before the corpus is encoded"
        raise ConfigError(settings[0], "auto", problem=problem, hint="give --pairs")
    # Warm-up, validations and saved states are auto too, and follow the updates: without such settings any corpus gives
    # the same numbers.
    return sized(plan, sizes.pairs or 1, sizes.length, sizes.monolingual)


def held_out(plan: Plan, split: str) -> int:
    """Sentences of dev or of a test set: as configured, else assumed."""
    dataset, split = plan.loaded.dataset, split if split == "dev" else TEST
    cut = getattr(dataset.split, split, None) if dataset.split else None
    limits = {str(name): number for name, number in plan.recipe.limits.items()}
    return limits.get(split) or dataset.generator.get(split) or cut or HELD_OUT


def work_of(plan: Plan, rule: str, wildcards: Mapping[str, str], sizes: Sizes) -> Work | None:
    """The work of a job, by its rule and wildcards; None for a job that neither trains nor translates."""
    if rule in plan.training_rules:
        system = plan.system(wildcards["system"])
        tokens = updates(system) * system.training.batch_tokens
        return Work(system.name, True, tokens * operations_a_position(system, plan), tokens)
    if rule == "distill":
        teacher = wildcards["teacher"]
        all_sentences = sizes.sentences(wildcards["split"])
        if not all_sentences:
            return Work(teacher, False, None)
        search, sentences = plan.distillation(teacher).search_settings(), all_sentences / int(wildcards["shards"])
        operations = decoding_operations(plan, plan.system(teacher), search, sentences, sizes.length)
        return Work(teacher, False, operations, sentences * sizes.length)
    if rule == "score_pairs":
        system, pairs = plan.system(wildcards["system"]), sizes.pairs and sizes.pairs / int(wildcards["shards"])
        if not pairs:
            return Work(system.name, False, None)
        return Work(system.name, False, scoring_operations(plan, system, pairs, sizes.length), pairs * sizes.length)
    if rule not in ("choose_settings", "decode", "decode_shard"):
        return None
    decode = plan.decode(wildcards["system"], wildcards["search"])
    if rule == "decode" and decode.shards > 1:
        # The job only joins shards.
        return None
    tried = rule == "choose_settings"
    sentences = held_out(plan, "dev" if tried else wildcards["split"]) / int(wildcards.get("shards", 1))
    return Work(decode.system, False, decode_operations(plan, decode, sentences, sizes.length, tried))


def gpu_hours(plan: Plan, work: Work) -> tuple[float, float] | None:
    """Hours of one GPU, at least and at most; None where the operations are not known."""
    if work.operations is None:
        return None
    wide = getattr(plan.system(work.system).model, "dim", 0) >= WIDE
    low, high = TRAINING_SHARE["wide" if wide else "narrow"] if work.training else DECODING_SHARE
    return work.operations / (PEAK * high) / 3600, work.operations / (PEAK * low) / 3600


def core_hours(rates: Rates, work: Work) -> float | None:
    """Hours of one core; None where the operations or all rates are not known."""
    rate = rates.rate_of(work.system, work.training)
    if work.operations == 0:
        return 0.0
    return None if work.operations is None or rate is None else work.operations / rate / 3600


def disk_bytes(plan: Plan, sizes: Sizes) -> float:
    """Bytes: texts (raw, normalised, distilled), arrays, and for each system its weights, bundle and training state.

    Weights of models made elsewhere are taken to be in float32.
    """
    subwords = plan.recipe.subwords
    texts = 0.0
    if sizes.pairs:
        characters = sizes.pairs * sizes.length * BYTES_A_SUBWORD
        texts = characters * (4 + len(plan.distilled)) + len(plan.texts) * sizes.pairs * 2 * sizes.length * 4
    models = 4.0 * sum(parameters(plan.system(name), vocabulary_size(plan), subwords.joint) for name, _ in plan.imports)
    for system in plan.loaded.systems.values():
        weights = 4.0 * parameters(system, vocabulary_size(plan), subwords.joint)
        frozen_systems = map(plan.system, system.served_with.values())
        frozen = 4.0 * sum(parameters(other, vocabulary_size(plan), subwords.joint) for other in frozen_systems)
        averaged = system.training.average_last if system.training.keep == "average" else 1
        # Final weights, the bundle (with other roles), two states of weights and two moments, and validated weights.
        models += (2 * weights + frozen + 2 * 3 * weights + averaged * weights) * sum(
            name == system.name for name, _ in plan.trained
        )
    return texts + models


def total(numbers: Iterable[float | None]) -> float:
    """The sum of the numbers that are known."""
    return math.fsum(number for number in numbers if number is not None)
