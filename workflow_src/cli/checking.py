"""`continuum check`: whether a configuration is valid, its files are there, and its texts can be read."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workflow_src.cli.sizes import limit_in_words, sizes
from workflow_src.cli.texts import first_texts, in_other_scripts, own_parts, own_text_counts
from workflow_src.config import Plan, costs
from workflow_src.config.datasets import TEST
from workflow_src.config.texts import MONOLINGUAL
from workflow_src.data.corpus import check_named_files, check_own_texts
from workflow_src.data.tokenised import shares_of
from workflow_src.data.tokenised import warning as tokenised_words
from workflow_src.errors import ConfigError
from workflow_src.registry import engines, import_plugins


def check(plan: Plan) -> Iterator[str]:
    """Lines that say what is valid. Raises InputError for the first thing that is wrong."""
    costs.check(plan)
    import_plugins()
    check_files(plan)
    counts = own_text_counts(plan)
    check_numbers(plan, counts)
    systems = ", ".join(plan.loaded.systems)
    yield (
        f"Experiment {plan.experiment} is valid: data recipe {plan.recipe.name}, systems {systems}, "
        f"{len(plan.rows)} translations."
    )
    for name, system in plan.loaded.systems.items():
        if system.training.warm_up_warning:
            yield f"warning: systems.{name}.{system.training.warm_up_warning}"
    if packages := missing_packages(plan):
        yield f"warning: engines need packages that are not installed here: {', '.join(packages)}. Install them first."
    if counts:
        read = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        yield f"Your texts can be read; their lines or rows: {read}."
    for setting, text in unread_texts(plan).items():
        yield f"warning: no system learns from {setting}, which is not read; add {text} to the data of one."
    texts = first_texts(plan)
    if others := in_other_scripts(plan, texts):
        yield (
            f"warning: most letters are of another script than the language: {', '.join(others)}. Check whether files "
            "are swapped, and the codes of languages."
        )
    if sentence := tokenised_words(shares_of(texts)):
        yield f"warning: {sentence}"
    if "train" in counts and (limit := sizes(plan).limit):
        yield limit_in_words(limit)


def missing_packages(plan: Plan) -> list[str]:
    """Packages of the engines of decodes and distillations, without those that are installed."""
    names = {decode.engine for decode in plan.loaded.decodes} | {
        plan.distillation(name).engine for name in plan.teachers
    }
    used = [engine for name, engine in engines().items() if name in names and not engine.installed()]
    return [package for engine in used for package in engine.packages]


def unread_texts(plan: Plan) -> dict[str, str]:
    """Settings of the recipe that name text from which no system learns; by each, the text that `data` would name."""
    unread = {f"recipe.distilled.{name}": name for name in plan.recipe.distilled if name not in plan.own_distilled}
    if plan.recipe.monolingual and not plan.reads_monolingual:
        unread["recipe.monolingual"] = f"{MONOLINGUAL}-by-SYSTEM"
    return unread


def check_files(plan: Plan) -> None:
    """Raises InputError for a missing file or program of the user's that the configuration names."""
    check_own_texts(plan)
    check_named_files(plan.own_inputs)
    if plan.reads_monolingual:
        check_named_files(plan.own_monolingual.items())
    for name, python in plan.config.runtime.pythons.items():
        if not shutil.which(python):
            hint = "change its path, or remove it"
            raise ConfigError(f"runtime.pythons.{name}", str(python), problem="no such program", hint=hint)


def check_numbers(plan: Plan, counts: Mapping[str, int]) -> None:
    """Raises ConfigError for a split that takes more pairs than there are, and for more shards than sentences.

    `counts` are those of the user's own texts; numbers that nobody knows before a download are not checked.
    """
    dataset, known = plan.loaded.dataset, _known_sentences(plan, counts)
    if dataset.split and "train" in known:
        cut = dataset.split.sizes(known["train"])
        if min(cut.values()) < 1:
            parts = " and ".join(f"{size} of {name}" for name, size in cut.items() if name != "train")
            problem = f"train has {known['train']} pairs, from which it takes {parts}"
            hint = "change its numbers, so that each part has pairs"
            raise ConfigError(f"split of dataset {dataset.name}", problem=problem, hint=hint)
        known |= cut
    limits: Mapping[str, int] = {str(name): limit for name, limit in plan.recipe.limits.items()}
    for name in known:
        limit = limits.get(TEST if name in plan.loaded.test_sets else name)
        known[name] = min(limit or known[name], known[name])
    of_teachers = {teacher: [name for other, name in plan.distilled if other == teacher] for teacher in plan.teachers}
    sharded: list[tuple[str, Any, Sequence[str]]] = [
        *((f"distillation.{name}", plan.distillation(name), splits) for name, splits in of_teachers.items()),
        *((f"likelihood.{name}", plan.likelihood(name), ["train"]) for name in plan.scoring),
        *((f"decode {decode.system}/{decode.name}", decode, decode.splits) for decode in plan.loaded.decodes),
    ]
    for where, section, names in sharded:
        for part in names:
            if section.shards > known.get(part, math.inf):
                allowed = f"{known[part]} or less, the sentences of {part}"
                raise ConfigError(f"{where}.shards", section.shards, allowed=allowed)


def _known_sentences(plan: Plan, counts: Mapping[str, int]) -> dict[str, int]:
    """Sentences by split before it is cut: of texts that are the user's own as a whole, and of generated ones."""
    dataset = plan.loaded.dataset
    generated = {name: getattr(dataset.generated, name, None) for name in dataset.raw_splits}
    known = {name: number for name, number in generated.items() if number}
    known |= {name: counts[name] for name, parts in dataset.parts.items() if len(own_parts(plan, name)) == len(parts)}
    if plan.monolingual_texts and all(name in counts for name in plan.monolingual_texts):
        known[MONOLINGUAL] = sum(counts[name] for name in plan.monolingual_texts)
    return known
