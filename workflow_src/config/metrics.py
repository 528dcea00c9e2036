"""The metrics that an experiment measures, with their settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from workflow_src.config.base import Frozen, parse
from workflow_src.errors import ConfigError
from workflow_src.registry import default_metrics, main_metric, metrics
from workflow_src.spec import Corpus, Metric


@dataclasses.dataclass(frozen=True)
class Measured:
    """A metric with the settings that it is measured with."""

    metric: Metric
    settings: Frozen


def default_measured() -> tuple[Measured, ...]:
    """Metrics of an experiment that lists none."""
    return tuple(Measured(metric, metric.settings()) for metric in default_metrics())


def resolve(listed: Mapping[str, Mapping[str, Any]] | None, corpus: Corpus) -> tuple[Measured, ...]:
    """The metrics that a configuration lists, and the main one, in their order. Raises ConfigError."""
    if listed is None:
        return default_measured()
    for name, settings in listed.items():
        if name not in metrics():
            raise ConfigError(f"metrics.{name}", problem="no metric", allowed=metrics())
        metric, where = metrics()[name], f"metrics.{name}"
        if missing := metric.missing():
            raise ConfigError(
                where, problem=f"it needs {' and '.join(missing)}, not installed", hint="install it, or remove it"
            )
        if reason := metric.conflict(corpus, parse(metric.settings, settings, where)):
            raise ConfigError(where, problem=f"it {reason}", hint="remove it")
    names = {main_metric().name: {}, **listed}
    return tuple(
        Measured(metric, parse(metric.settings, names[name], f"metrics.{name}"))
        for name, metric in metrics().items()
        if name in names
    )


def handed(measured: tuple[Measured, ...]) -> dict[str, Any]:
    """Settings of rules: nothing for the default metrics, else `metrics`, settings by name."""
    if measured == default_measured():
        return {}
    return {"metrics": {entry.metric.name: entry.settings.model_dump(mode="json") for entry in measured}}


def measured(listed: Mapping[str, Mapping[str, Any]] | None) -> tuple[Measured, ...]:
    """The metrics of a rule's settings, in their order; None for the default ones. Raises ConfigError."""
    if listed is None:
        return default_measured()
    for name in listed:
        if name not in metrics():
            raise ConfigError(f"--settings.metrics.{name}", problem="no metric", allowed=metrics())
    if main_metric().name not in listed:
        raise ConfigError("--settings.metrics", problem=f"{main_metric().name} is missing", hint="add it")
    return tuple(
        Measured(metric, parse(metric.settings, listed[name], f"--settings.metrics.{name}"))
        for name, metric in metrics().items()
        if name in listed
    )


class ScoringSettings(Frozen):
    """Settings of rules that score translations: the corpus, and metrics that are not the default ones."""

    bleu_tokeniser: str
    source: str = ""
    target: str = ""
    generator: dict[str, Any] | None = None
    metrics: dict[str, dict[str, Any]] | None = None

    @property
    def corpus(self) -> Corpus:
        return Corpus(self.source, self.target, self.bleu_tokeniser, bool(self.generator))

    @property
    def measured(self) -> tuple[Measured, ...]:
        return measured(self.metrics)
