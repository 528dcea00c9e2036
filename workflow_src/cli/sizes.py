"""What an experiment's work depends on before it runs: training pairs, lengths of sentences; and its space on the disk.

No torch here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workflow_src.cli.operations import Operations
from workflow_src.cli.texts import characters, first_pairs, subword_lengths
from workflow_src.config.costs import Sizes, sentence_length, sized, training_pairs
from workflow_src.config.plan import Plan
from workflow_src.config.sizes import AUTO, max_length
from workflow_src.data.cleaning import clean, steps_of
from workflow_src.data.corpus import check_own_texts, count_training_pairs, monolingual_lines
from workflow_src.data.drops import NOTABLE
from workflow_src.errors import ArtifactError, ConfigError, InputError
from workflow_src.records.atomic import read_json
from workflow_src.spec import Pair

BYTES_A_SUBWORD = 4.5
# Training pairs whose subwords are counted before the corpus is encoded.
SAMPLED = 20_000


@dataclasses.dataclass(frozen=True)
class CountedSizes(Sizes):
    """Sizes of a corpus, and the source of `pairs` and `length` in words.

    `limit` has max_length and the share of pairs beyond it, where a text was sampled or encoded (`length_limit`).
    """

    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    limit: Mapping[str, Any] | None = None


def own_pairs(plan: Plan) -> int | None:
    """Pairs of the user's own training texts, less those that become dev and test; None where a text is not there."""
    dataset = plan.loaded.dataset
    pairs = count_training_pairs(dataset, (plan.recipe.source, plan.recipe.target))
    if pairs and dataset.split:
        pairs = dataset.split.sizes(pairs)["train"]
    return max(1, pairs) if pairs else None


def sizes(
    plan: Plan, pairs: int | None = None, length: float | None = None, encoded: Mapping[str, Any] | None = None
) -> CountedSizes:
    """Sizes by `pairs` and `length`, else as encoding counted them, else by the texts themselves, else assumed.

    `encoded` is the description of the encoded training pairs. Without it, pairs are the lines of the user's own texts
    or those that the dataset states, and lengths are those of the first pairs, where these are on this machine. Of
    these, pairs that filters leave out are not counted.
    """
    counted = (encoded["pairs"], mean_length(encoded)) if encoded else (None, None)
    lines = None if pairs or encoded else own_pairs(plan)
    stated = "stated by the dataset"
    length_origin = stated if plan.loaded.dataset.sentence_length else "assumed"
    origins = ("counted", "counted") if encoded else (stated, length_origin)
    sources = {"pairs": "given" if pairs else origins[0], "length": "given" if length else origins[1]}
    if lines:
        sources["pairs"] = "lines of your texts"
    estimated = not pairs and not encoded
    pairs = training_pairs(plan, pairs or counted[0] or lines)
    sample = sampled(plan, pairs, bool(encoded)) if pairs else Sample()
    if estimated and pairs and plan.loaded.cleaning:
        pairs = max(1, round(pairs * sample.kept))
        by = f"less what filters leave out of the first {sample.read:,} pairs" if sample.read else "before filters"
        sources["pairs"] = f"{sources['pairs']}, {by}"
    if sample.lengths and not length:
        length = sum(map(sum, sample.lengths)) / (2 * len(sample.lengths))
        sources["length"] = f"counted in the first {len(sample.lengths):,} pairs"
    length = sentence_length(plan, length or counted[1])
    limit = length_limit(plan, tuple(map(max, sample.lengths)), encoded)
    return CountedSizes(pairs, length, monolingual_lines(plan), sample.characters, sources, limit)


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
    """The first training pairs: how many were read, the share that filters keep, and of the kept pairs their subwords
    and the characters of a vocabulary."""

    read: int = 0
    kept: float = 1.0
    lengths: Sequence[tuple[int, int]] = ()
    characters: int = 0


def sampled(plan: Plan, pairs: int, encoded: bool) -> Sample:
    """A sample of the training pairs; an empty one where these are generated, or not on this machine.

    Of pairs that are `encoded`, lengths are known, and characters matter where the vocabulary is auto.
    """
    if plan.loaded.dataset.kind == "generated" or (encoded and plan.recipe.subwords.vocabulary_size != AUTO):
        return Sample()
    recipe = plan.recipe
    try:
        raw, _ = first_pairs(plan.loaded, SAMPLED)
        first = [Pair(pair.first, pair.second, pair.score) for pair in raw]
        steps = steps_of(plan.loaded.cleaning, (recipe.source, recipe.target), 0)
        kept = [pair for _, pair in clean(first, steps)] if plan.loaded.cleaning else first
        share = len(kept) / len(first) if first else 1.0
        # Normalisation leaves out the others.
        texts = [(pair.source, pair.target) for pair in kept if pair.source and pair.target]
        distinct_characters = characters(plan, texts)
        lengths = [] if encoded else subword_lengths(plan, texts, pairs, distinct_characters)
        return Sample(len(first), share, lengths, distinct_characters)
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
    """The plan with numbers in place of auto. Raises InputError where the number of training pairs is not known."""
    settings = automatic(plan)
    if settings and sizes.pairs is None:
        check_own_texts(plan)
        problem = "the number of training pairs is not known before the corpus is encoded"
        raise ConfigError(settings[0], "auto", problem=problem, hint="give --pairs")
    # Warm-up, validations and saved states are auto too, and follow the updates: without such settings any corpus gives
    # the same numbers.
    return sized(plan, sizes)


def disk_bytes(operations: Operations, sizes: Sizes) -> float:
    """Bytes: texts (raw, normalised, distilled), arrays, and for each system its weights, bundle and training state.

    Weights of models made elsewhere are taken to be in float32.
    """
    plan, texts = operations.plan, 0.0
    if sizes.pairs:
        characters = sizes.pairs * sizes.length * BYTES_A_SUBWORD
        texts = characters * (4 + len(plan.distilled)) + len(plan.texts) * sizes.pairs * 2 * sizes.length * 4
    models = 4.0 * sum(operations.parameters(plan.system(name)) for name, _ in plan.imports)
    for system in plan.loaded.systems.values():
        weights = 4.0 * operations.parameters(system)
        frozen = 4.0 * sum(operations.parameters(plan.system(name)) for name in system.served_with.values())
        averaged = system.training.average_last if system.training.keep == "average" else 1
        # Final weights, the bundle (with other roles), two states of weights and two moments, and validated weights.
        models += (2 * weights + frozen + 2 * 3 * weights + averaged * weights) * sum(
            name == system.name for name, _ in plan.trained
        )
    return texts + models
