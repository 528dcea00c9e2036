"""Reads a configuration, and checks everything of it that can be checked without data."""

from __future__ import annotations

from typing import Any

from workflow_src.config.compose import check_new_systems, experiment, extended, laid_over
from workflow_src.config.datasets import DatasetConfig, GroupSplit
from workflow_src.config.declared import filter_settings, member_settings, reason
from workflow_src.config.decodes import check_search_defaults, resolve_decodes
from workflow_src.config.experiment import DecodeOptions, WorkflowConfig
from workflow_src.config.files import CONFIG_FOLDER, dataset_names, experiment_file, experiment_names, merge, read_yaml
from workflow_src.config.languages import two_letters
from workflow_src.config.metrics import Measured, able_to_choose, check_pythons, resolve
from workflow_src.config.parts import RowsPart
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.config.recipe import READS_TEXT
from workflow_src.config.resolved import Decode, Loaded, System
from workflow_src.config.roles import named_systems
from workflow_src.config.sweeps import swept
from workflow_src.config.systems import check_augmented, resolve_systems
from workflow_src.config.tokenisers import bleu_tokeniser
from workflow_src.errors import ConfigError
from workflow_src.registry import analyses, conventions, filters, generators, main_metric
from workflow_src.spec import SCORES, Corpus, Frozen, parse


def load_experiment(name: str, **settings: Any) -> Loaded:
    """The shipped experiment `name` on top of `config/config.yaml`, with `settings` over both."""
    return load({**read_yaml(CONFIG_FOLDER / "config.yaml"), "experiment": name, **settings})


def composed(raw: dict[str, Any]) -> dict[str, Any]:
    """A raw configuration, as Snakemake merged it, laid over what it extends, with its lists of systems written out.

    A mapping that has `recipe` or `extends` is complete in itself; otherwise `experiment` names a shipped
    experiment, and all other settings are laid over it: also parts of a recipe, without a name of its own.

    Raises ConfigError.
    """
    if _is_complete(raw):
        return swept(extended(raw))
    if "experiment" not in raw:
        raise ConfigError("experiment", problem="missing", hint="name a file of config/experiments/")
    return swept(laid_over(experiment(raw["experiment"], "experiment"), raw))


def load(raw: dict[str, Any]) -> Loaded:
    """A raw configuration, as Snakemake merged it, `composed` and checked. Raises ConfigError."""
    return load_composed(composed(raw))


def load_composed(raw: dict[str, Any]) -> Loaded:
    """Check what `composed` gives. Raises ConfigError with one sentence for the first thing that is wrong."""
    check_new_systems(raw.get("systems", {}))
    config: WorkflowConfig = parse(WorkflowConfig, raw, "")
    recipe, dataset = config.recipe, _dataset(config)
    languages = recipe.source, recipe.target
    for side, language in zip(("source", "target"), languages, strict=True):
        if language not in dataset.languages:
            raise ConfigError(f"recipe.{side}", language, allowed=dataset.languages)
    tokeniser = bleu_tokeniser(recipe.target, recipe.bleu_tokeniser)
    steps = merge(dataset.normalisation, recipe.normalisation)
    normalisation = parse(NormalisationConfig, steps, "recipe.normalisation")
    # The embedded grammar alone knows all valid translations.
    is_toy = dataset.generated is not None and dataset.declared_generator is next(iter(generators().values()))
    corpus = Corpus(*languages, tokeniser, is_toy, normalisation.altering)
    measured = resolve(config.metrics, corpus)
    check_pythons(config.runtime.pythons)
    _check_convention(config.report.expected_convention, measured, corpus)
    _check_parts(dataset, languages)
    if "references" not in steps:
        _check_references(normalisation, recipe.target)
    cleaning = _cleaning(config, dataset)
    systems = resolve_systems(config)
    _check_split(dataset, languages)
    check_augmented(systems, normalisation)
    for system in systems.values():
        check_search_defaults(system, systems)
    decodes = resolve_decodes(config, systems, config.test or dataset.test_sets)
    _check_choices(config, measured, corpus)
    _check_ranked_text(config, systems, decodes)
    sections: dict[str, Any] = {name: {} for name in analyses()} | config.analyses
    settings = member_settings("analysis", sections, analyses(), "analyses")
    return Loaded(config, dataset, normalisation, systems, decodes, measured, settings, cleaning, corpus)


def _is_complete(raw: dict[str, Any]) -> bool:
    """True for settings of an experiment, false for those that are laid over a shipped one."""
    recipe = raw.get("recipe", {})
    partial = isinstance(recipe, dict) and "name" not in recipe and raw.get("experiment") in experiment_names()
    return raw.get("extends") is not None or (not partial and "recipe" in raw)


def check_own_name(raw: dict[str, Any]) -> None:
    """Raises ConfigError for an experiment of the user's with the name of a shipped one, whose report it would replace.

    The shipped one itself, with other settings laid over it, is no other experiment.
    """
    name = raw.get("experiment")
    if name not in experiment_names() or not _is_complete(raw):
        return
    shipped = read_yaml(experiment_file(str(name)))
    if merge(shipped, raw, null_removes=False) != raw:
        raise ConfigError(
            "experiment",
            name,
            problem="the name of a shipped experiment, whose report this one would replace",
            hint="add experiment: with a name of its own",
        )


def _check_convention(name: str, measured: tuple[Measured, ...], corpus: Corpus) -> None:
    """Check that the metric of published figures is measured and fits the corpus. Raises ConfigError."""
    where = "report.expected_convention"
    if name not in conventions():
        raise ConfigError(where, name, allowed=conventions())
    metric, main = conventions()[name], main_metric().convention
    remedy = f"say {main.name}" if main else "remove it"
    if why := reason(metric, "conflict", corpus, metric.settings()):
        raise ConfigError(where, name, problem=f"it {why}", hint=remedy)
    if metric not in [entry.metric for entry in measured]:
        raise ConfigError(where, name, problem=f"metrics lists no {metric.name}", hint=f"add it, or {remedy}")


def _check_ranked_text(config: WorkflowConfig, systems: dict[str, System], decodes: tuple[Decode, ...]) -> None:
    """Raises ConfigError where a model made elsewhere, which reads text, would rank ids with placeholders."""
    if not config.recipe.placeholders:
        return
    for decode in decodes:
        for role, name in named_systems(decode.values).items():
            if systems[name].family.imported:
                hint = "name a system that is trained, or remove recipe.placeholders"
                where = f"{role} of decode {decode.system}/{decode.name}"
                raise ConfigError(where, name, problem=READS_TEXT, hint=hint)


def _check_choices(config: WorkflowConfig, measured: tuple[Measured, ...], corpus: Corpus) -> None:
    """Check that metrics that choose on dev are measured and fit the corpus. Raises ConfigError."""
    fits = able_to_choose(measured, corpus)
    sections: dict[str, DecodeOptions] = {"decode_defaults": config.decode_defaults}
    sections |= {f"decodes[{number}]": section for number, section in enumerate(config.decodes)}
    for where, section in sections.items():
        if section.tune_by is not None and section.tune_by not in fits:
            raise ConfigError(f"{where}.tune_by", section.tune_by, allowed=fits)


def _dataset(config: WorkflowConfig) -> DatasetConfig:
    chosen = config.recipe.dataset
    if isinstance(chosen, str):
        if chosen not in dataset_names():
            raise ConfigError("recipe.dataset", chosen, allowed=dataset_names())
        definition = read_yaml(CONFIG_FOLDER / "datasets" / f"{chosen}.yaml")
        chosen = parse(DatasetConfig, definition, f"datasets/{chosen}.yaml")
    for name in config.test or ():
        if name not in chosen.test_sets:
            raise ConfigError("test", name, allowed=chosen.test_sets)
    if config.test is None:
        return chosen
    # Drop test sets that lack a language of the direction and are not translated. The others stay: experiments of a
    # recipe share its corpus.
    languages = {config.recipe.source, config.recipe.target}
    lacking = {
        name
        for name, parts in chosen.test.items()
        if any(not languages.issubset(chosen.languages_of(part)) for part in parts)
    }
    test_sets = {name: parts for name, parts in chosen.test.items() if name in config.test or name not in lacking}
    return chosen.model_copy(update={"test": test_sets})


def _cleaning(config: WorkflowConfig, dataset: DatasetConfig) -> dict[str, Frozen]:
    """Settings of the filters of a recipe, in their order. Raises ConfigError."""
    cleaning = filter_settings(config.recipe.clean.items(), (config.recipe.source, config.recipe.target))
    reads = [name for name in cleaning if SCORES in filters()[name].needs]
    scoring = " or ".join(name for name, declared in filters().items() if SCORES in declared.needs)
    for split, parts in dataset.parts.items():
        for number, part in enumerate(parts):
            if not isinstance(part, RowsPart) or not part.has_scores or part.minimum_score is not None:
                continue
            if not (reads and split == "train"):
                alternative = f", or recipe.clean.{scoring}" if split == "train" else ""
                raise ConfigError(
                    f"score_column of {dataset.place(split, number)} of dataset {dataset.name}",
                    part.score_column,
                    problem="it has no effect",
                    hint=f"add minimum_score{alternative}",
                )
    if reads and not any(part.has_scores for part in dataset.train):
        raise ConfigError(
            f"recipe.clean.{reads[0]}",
            problem=f"train of dataset {dataset.name} has no scores",
            hint="add score_column to a table or records of train, or remove the filter",
        )
    return cleaning


def _check_references(normalisation: NormalisationConfig, target: str) -> None:
    """Raises ConfigError where normalisation takes from outputs what references have: capitals or diacritics."""
    changed = [("lowercase", "capitals")] if normalisation.lowercase else []
    changed += [("romanian", "diacritics")] if normalisation.romanian and two_letters(target) == "ro" else []
    for setting, lacking in changed:
        raise ConfigError(
            f"recipe.normalisation.{setting}",
            True,
            problem=f"outputs have no {lacking}, and references do",
            hint="add references: normalised, or references: given to score outputs so",
        )


def _check_parts(dataset: DatasetConfig, languages: tuple[str, str]) -> None:
    """Check that every part has both sides of the direction, and one source. Raises ConfigError."""
    for split, parts in dataset.parts.items():
        for number, part in enumerate(parts):
            where = f"{dataset.place(split, number)}.{part.by_language} of dataset {dataset.name}"
            for language in languages:
                if language not in dataset.languages_of(part):
                    other_sets = [name for name in dataset.test if name != split]
                    leave = f", or leave the test set out by test: [{', '.join(other_sets)}]"
                    hint = f"add {language}{leave if split in dataset.test and other_sets else ''}"
                    raise ConfigError(where, sorted(part.languages), problem=f"no {language}", hint=hint)
            if (count := part.references(languages[0])) > 1:
                raise ConfigError(where, problem=f"{count} texts in {languages[0]}, the source", allowed="one")


def _check_split(dataset: DatasetConfig, languages: tuple[str, str]) -> None:
    """Check that a split is by a language of the direction. Raises ConfigError."""
    if isinstance(dataset.split, GroupSplit) and dataset.split.key_language not in (None, *languages):
        where = f"split.key_language of dataset {dataset.name}"
        raise ConfigError(where, dataset.split.key_language, problem="not in the direction", allowed=languages)
