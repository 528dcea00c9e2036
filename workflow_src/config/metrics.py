"""The metrics that an experiment measures, with their settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from workflow_src.config.declared import member_settings, reason
from workflow_src.errors import ConfigError
from workflow_src.registry import default_metrics, main_metric, metrics
from workflow_src.spec import Corpus, Frozen, Metric


@dataclasses.dataclass(frozen=True)
class Measured:
    """A metric with the settings that it is measured with."""

    metric: Metric
    settings: Frozen


def default_measured() -> tuple[Measured, ...]:
    return tuple(Measured(metric, metric.settings()) for metric in default_metrics())


def resolve(listed: Mapping[str, Mapping[str, Any]] | None, corpus: Corpus) -> tuple[Measured, ...]:
    """The metrics that a configuration lists, and the main one, in their order. Raises ConfigError."""
    if listed is None:
        return default_measured()
    resolved = _parsed({main_metric().name: {}, **listed}, "metrics")
    for entry in resolved:
        metric = entry.metric
        if metric.name in listed and (why := reason(metric, "conflict", corpus, entry.settings)):
            hint = "change its settings, or remove it" if type(entry.settings).model_fields else "remove it"
            raise ConfigError(f"metrics.{metric.name}", problem=f"it {why}", hint=hint)
    return resolved


def check_pythons(names: Iterable[str]) -> None:
    """Check that every metric that has a Python of its own has a program. Raises ConfigError."""
    programs = [name for name, metric in metrics().items() if metric.program]
    for name in names:
        if name not in programs:
            raise ConfigError(f"runtime.pythons.{name}", problem="no metric with a program", allowed=programs)


def _parsed(listed: Mapping[str, Mapping[str, Any]], where: str) -> tuple[Measured, ...]:
    """The metrics of a mapping of names to settings, in the order of all metrics. Raises ConfigError."""
    settings = member_settings("metric", listed, metrics(), where)
    return tuple(Measured(metric, settings[name]) for name, metric in metrics().items() if name in settings)


def measured(listed: Mapping[str, Mapping[str, Any]] | None) -> tuple[Measured, ...]:
    """The metrics of a rule's settings, in their order; None for the default ones. Raises ConfigError."""
    if listed is None:
        return default_measured()
    where = "settings.metrics"
    entries = _parsed(listed, where)
    if main_metric().name not in listed:
        raise ConfigError(where, problem=f"{main_metric().name} is missing", hint="add it")
    return entries


def able_to_choose(measured: Iterable[Measured], corpus: Corpus) -> dict[str, Measured]:
    """By name the metrics that can choose settings on dev: those that score the corpus without a program.

    Candidates are scored by the job that decodes them, in its own environment.
    """
    return {
        entry.metric.name: entry
        for entry in measured
        if not entry.metric.program and not reason(entry.metric, "conflict", corpus, entry.settings)
    }


class ScoringSettings(Frozen):
    """Settings of rules that score translations: the corpus, and metrics that are not the default ones."""

    corpus: Corpus
    metrics: dict[str, dict[str, Any]] | None = None

    @property
    def measured(self) -> tuple[Measured, ...]:
        return measured(self.metrics)
