"""Floating-point operations of single jobs, and the hours that they take: on a GPU, or on one core of this machine."""

from __future__ import annotations

import dataclasses
import json
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
    scoring_operations,
    sentence_length,
    sized,
    training_pairs,
    updates,
)
from workflow_src.config.datasets import TEST
from workflow_src.config.plan import Plan
from workflow_src.config.sizes import AUTO, max_length
from workflow_src.config.texts import MONOLINGUAL, RAW, base_of
from workflow_src.data.corpus import count_training_pairs, monolingual_lines
from workflow_src.data.download import without_passwords
from workflow_src.data.drops import NOTABLE
from workflow_src.errors import ArtifactError, ConfigError, InputError
from workflow_src.records.atomic import read_json

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
    # Subwords of the longer side of sampled pairs, where the text is sampled.
    sampled: tuple[int, ...] = ()

    def sentences(self, split: str) -> int | None:
        """Number of sentences; an unknown monolingual count is taken as that of pairs."""
        return self.monolingual or self.pairs if split == MONOLINGUAL else self.pairs


@dataclasses.dataclass(frozen=True)
class Work:
    """Operations of training a system or of decoding with it. None: the number of training pairs is not known."""

    system: str
    training: bool
    operations: float | None


def encoded_counts(plan: Plan) -> tuple[int, float] | None:
    """Training pairs and mean subwords of a sentence (of both languages) in the encoded corpus.

    None without one, and where it was made with other settings: it is made again.
    """
    summary = encoded_summary(plan)
    if summary is None:
        return None
    counts = read_json(summary)
    try:
        return counts["pairs"], (counts["source_tokens"] + counts["target_tokens"]) / (2 * counts["pairs"])
    except (KeyError, TypeError, ZeroDivisionError):
        raise ArtifactError(summary, "does not describe an encoded corpus", "encode it again, or delete it") from None


def encoded_summary(plan: Plan) -> Path | None:
    """The description of the encoded training pairs, or None as `encoded_counts`."""
    if not _is_current(plan):
        return None
    # Augmented text has as many pairs, and a few more subwords.
    names = dict.fromkeys([RAW, *(text for text in plan.texts if base_of(text) == RAW)])
    summaries = {name: Path(f"{plan.encoded(name, 'train')}.json") for name in names}
    return next((path for name, path in summaries.items() if path.exists() and _is_encoded_so(plan, name, path)), None)


def _is_encoded_so(plan: Plan, text: str, summary: Path) -> bool:
    """Whether a description says no other settings than those of the plan; `encoded_counts` names a damaged one."""
    content, settings = read_json(summary), json.loads(plan.settings_encode(text))
    record = content.get("provenance", {}) if isinstance(content, dict) else {}
    return record.get("settings", settings) == settings


def _is_current(plan: Plan) -> bool:
    """Whether the records of the corpus, as far as there are any, have the settings of the plan."""
    settings = {
        Path(plan.raw("raw", "json")): plan.settings_download(),
        Path(plan.corpus_summary): plan.settings_normalise(),
        Path(plan.subwords, "subwords.json"): plan.settings_subwords(),
    }
    if plan.loaded.cleaning:
        settings[Path(plan.cleaned("raw", "json"))] = plan.settings_clean()
    for path, text in settings.items():
        if path.exists():
            if _recorded_settings(path) != without_passwords(json.loads(text)):
                return False
    return True


def _recorded_settings(path: Path) -> Any:
    """The settings that a file was made with, by its record. Raises ArtifactError where it has none."""
    try:
        return read_json(path)["provenance"]["settings"]
    except (KeyError, TypeError):
        problem = "does not say with what settings it was made"
        raise ArtifactError(path, problem, "delete it: snakemake makes it again") from None


def own_pairs(plan: Plan) -> int | None:
    """Pairs of the user's own training texts, less those that become dev and test; None where a text is not there."""
    dataset = plan.loaded.dataset
    pairs = count_training_pairs(dataset, (plan.recipe.source, plan.recipe.target))
    cut = dataset.split.dev + dataset.split.test if dataset.split else 0
    return max(1, pairs - cut) if pairs else None


def sizes(plan: Plan, pairs: int | None = None, length: float | None = None) -> Sizes:
    """Sizes by `pairs` and `length`, else as encoding counted them, else by the texts themselves, else assumed.

    Pairs are the lines of the user's own texts. Lengths are those of the first pairs, where these are on this machine.
    """
    counted = encoded_counts(plan) or (None, None)
    lines = None if pairs or counted[0] else own_pairs(plan)
    default_sources = ("counted", "counted") if counted[0] else ("stated by the dataset", "assumed")
    sources = {"pairs": "given" if pairs else default_sources[0], "length": "given" if length else default_sources[1]}
    if lines:
        sources["pairs"] = "lines of your texts"
    pairs = training_pairs(plan, pairs or counted[0] or lines)
    sampled = sampled_lengths(plan, pairs) if pairs and not counted[0] else []
    if sampled and not length:
        length = sum(map(sum, sampled)) / (2 * len(sampled))
        sources["length"] = f"counted in the first {len(sampled):,} pairs"
    length = sentence_length(plan, length or counted[1])
    return Sizes(pairs, length, sources, monolingual_lines(plan), tuple(map(max, sampled)))


def sampled_lengths(plan: Plan, pairs: int) -> list[tuple[int, int]]:
    """Subwords of both sides of the first training pairs; none where these are generated, or not on this machine."""
    if plan.loaded.dataset.kind == "generated":
        return []
    try:
        first, _ = first_pairs(plan.loaded, SAMPLED)
        return subword_lengths(plan, [(pair.first, pair.second) for pair in first], pairs)
    except InputError:
        # `check` and the job that reads them report the error.
        return []


def length_limit(plan: Plan, sampled: Sequence[int]) -> dict[str, Any] | None:
    """`limit`, the number of max_length, and `left_out`, the share of pairs beyond it.

    `sampled` has the subwords of the longer side of each pair; without a sample, encoding has counted. None without
    either.
    """
    setting = plan.recipe.max_length
    if not sampled:
        if (summary := encoded_summary(plan)) is None:
            return None
        counts = read_json(summary)
        dropped = counts.get("dropped", {})
        beyond = sum(dropped.get(f"{side}-too-long", 0) for side in ("source", "target"))
        share = beyond / (counts["pairs"] + sum(dropped.values()))
        return {"auto": setting == AUTO, "limit": counts.get("max_length", setting), "left_out": share}
    limit = max_length(sampled) if setting == AUTO else setting
    return {"auto": setting == AUTO, "limit": limit, "left_out": sum(n > limit for n in sampled) / len(sampled)}


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
        operations = operations_a_position(system, plan)
        return Work(system.name, True, updates(system) * system.training.batch_tokens * operations)
    if rule == "distill":
        teacher = wildcards["teacher"]
        all_sentences = sizes.sentences(wildcards["split"])
        if not all_sentences:
            return Work(teacher, False, None)
        search, sentences = plan.distillation(teacher).search_settings(), all_sentences / int(wildcards["shards"])
        return Work(teacher, False, decoding_operations(plan, plan.system(teacher), search, sentences, sizes.length))
    if rule == "score_pairs":
        system, pairs = plan.system(wildcards["system"]), sizes.pairs and sizes.pairs / int(wildcards["shards"])
        return Work(system.name, False, scoring_operations(plan, system, pairs, sizes.length) if pairs else None)
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


def total(numbers: Iterable[float | None]) -> float:
    """The sum of the numbers that are known."""
    return math.fsum(number for number in numbers if number is not None)
