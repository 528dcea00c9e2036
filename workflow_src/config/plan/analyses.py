"""The analyses of an experiment, with the systems and settings of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from workflow_src import registry
from workflow_src.config.datasets import TEST
from workflow_src.config.declared import called, subject
from workflow_src.config.plan.paths import Paths
from workflow_src.config.plan.selection import at_reference_lengths, main_split
from workflow_src.config.resolved import Loaded
from workflow_src.errors import ConfigError, DeclarationError, short_repr
from workflow_src.spec import Analysis, AnalysisSettings, Selection, Use, compared, settings_json


@dataclasses.dataclass(frozen=True)
class PlannedAnalysis:
    """An analysis of an experiment on a split: its file, its systems, and all settings that change its result.

    `enabled` is also False where the experiment has nothing to analyse. `limits` bound memory and change no result.
    `reads` are files of translations.
    """

    name: str
    rule: str
    message: str
    path: str
    split: str
    enabled: bool
    systems: tuple[str, ...]
    settings: str
    # The same without values that are defaults, which Snakemake compares.
    compared: str
    limits: Mapping[str, int] = dataclasses.field(compare=False)
    reads: tuple[str, ...] = ()
    hours: int = 1


def analyses(loaded: Loaded) -> dict[str, PlannedAnalysis]:
    """Analyses by name: those on by default, even where they are switched off, and those that are switched on.

    Analyses of table rows are measured on every test set, with the keys `NAME SET` for all but the main one.

    Raises ConfigError for an analysis that is switched on and has nothing to look at or cannot use its settings, and
    for published figures at the references' lengths that name no row; DeclarationError for one that selects nothing
    that can be used.
    """
    _check_expected(loaded)
    settings = loaded.analyses
    chosen = [a for a in registry.analyses().values() if settings[a.name].enabled or a.default.enabled]
    planned = {analysis.name: _planned(analysis, settings[analysis.name], loaded) for analysis in chosen}
    for name in loaded.test_sets[1:] if main_split(loaded) != "dev" else ():
        for analysis in (a for a in chosen if a.split is None):
            on_set = _planned(analysis, settings[analysis.name], loaded.with_main_test_set(name))
            paths = Paths(loaded)
            rule, path = paths.rule_on(on_set.rule, name), paths.of_test_set(on_set.path, name)
            planned[f"{analysis.name} {name}"] = dataclasses.replace(on_set, rule=rule, path=path)
    return planned


def _planned(analysis: Analysis, settings: AnalysisSettings, loaded: Loaded) -> PlannedAnalysis:
    selected = _selected(analysis, settings, loaded)
    if settings.enabled is True and not selected:
        raise ConfigError(
            f"analyses.{analysis.name}.enabled",
            True,
            problem=f"nothing that the experiment decodes or trains fits it: {analysis.needs}",
            hint=f"add such a system or decode, or remove analyses.{analysis.name}",
        )
    limits = settings.named(Use.LIMIT)
    unread = {*settings.selecting(), *limits}
    return PlannedAnalysis(
        name=analysis.name,
        rule=analysis.rule_name,
        message=analysis.message or f"Measuring {analysis.title.lower()}",
        path=f"results/{loaded.config.experiment}/analysis/{analysis.name.replace('_', '-')}.json",
        split=loaded.test_sets[0] if analysis.split == TEST else analysis.split or main_split(loaded),
        enabled=bool(settings.enabled and selected),
        systems=selected.systems,
        settings=settings_json(settings.model_dump(mode="json", exclude=unread) | dict(selected.entries)),
        compared=settings_json(compared(settings, exclude=unread) | dict(selected.entries)),
        limits={name: getattr(settings, name) for name in limits},
        reads=selected.translations,
        hours=analysis.hours,
    )


def _selected(analysis: Analysis, settings: AnalysisSettings, loaded: Loaded) -> Selection:
    """What an analysis looks at. Raises DeclarationError where its `select`, which may be a plug-in's, does not say."""
    where = subject(analysis)
    selected = called(analysis, "select", settings, loaded)
    if not isinstance(selected, Selection):
        problem = f"has a select whose result is {short_repr(selected)}"
        raise DeclarationError(where, problem, "return a workflow_src.spec.Selection")
    for system in selected.systems:
        if system not in loaded.systems:
            problem = f"has a select whose result names {short_repr(system)}, which is no system of the experiment"
            raise DeclarationError(where, problem, "return some of its systems")
    # Settings that decide what is selected are no settings of the rule.
    for name in sorted(selected.entries.keys() & analysis.settings.model_fields.keys() - settings.selecting()):
        problem = f'has the setting "{name}", and a select whose result has an entry of this name'
        raise DeclarationError(where, problem, "rename one of them")
    return selected


def _check_expected(loaded: Loaded) -> None:
    """Check that published figures at the references' lengths name decodes that translate so. Raises ConfigError."""
    expected = loaded.config.report.expected_reference_lengths
    allowed = [f"{entry['system']}/{entry['name']}" for entry in at_reference_lengths(loaded)] if expected else []
    for key in expected:
        if key not in allowed:
            raise ConfigError(
                "report.expected_reference_lengths",
                key,
                problem="no decode that translates at lengths",
                allowed=allowed,
            )
