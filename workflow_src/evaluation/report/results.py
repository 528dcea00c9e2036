"""The schema of `results.json`, its rows from measurements, and its checks."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field, SerializeAsAny, model_validator

from workflow_src.config import texts
from workflow_src.config.experiment import REMOVALS, Removal, removal
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.evaluation.analyses.energy import RowEnergies
from workflow_src.evaluation.manifest import Manifest, ShownDecode
from workflow_src.evaluation.manifest import Row as ManifestRow
from workflow_src.evaluation.quality import significance
from workflow_src.evaluation.quality.choosing import chosen_point
from workflow_src.evaluation.quality.significance import PairedDifference
from workflow_src.evaluation.quality.variants import VARIANTS
from workflow_src.evaluation.report.trained import TrainedSystem
from workflow_src.evaluation.speed.measured import Speed
from workflow_src.records.atomic import read_json, write_json
from workflow_src.records.checked import Strict, check_format, checked
from workflow_src.registry import controls, default_metrics, main_metric, metrics
from workflow_src.spec import Metric, config_error

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
AGAIN = "make the report again"
AGAIN_COMPARED = "compare the rows again"
RESULTS = "results.json"
FORMAT = 4


class Row(Strict):
    """One system, seed, search and variant. Values that do not apply are null.

    `row_type` adds the figure of each metric as NAME, and for a metric with uncertainty `NAME_ci` and, unless it is the
    main metric, `NAME_p_value`.
    """

    system: str = Field(min_length=1)
    family: str = Field(min_length=1)
    autoregressive: bool = Field(description="whether the family is autoregressive")
    means_repetitions: bool = Field(description="whether equal neighbours in outputs are meant")
    preset: str = Field(min_length=1)
    data: Literal["raw", "distilled", "monolingual", "mixed", "none"] = Field(
        description="none: the model was made elsewhere"
    )
    seed: int
    name: str = Field(description="name of the decode; distinguishes rows that differ in other settings")
    chosen: dict[str, float | str] | None = Field(None, description="settings chosen on dev")
    search: str = Field(min_length=1)
    title: str = Field(description="title of the search")
    settings: dict[str, bool | int | float | str | None] = Field(description="all settings of the search")
    series: str | None = Field(None, description="the setting that curves of the search run over")
    value: float | None = Field(None, description="value of the series")
    engine: str = Field(min_length=1)
    mean_steps: Annotated[float, Field(ge=0)] | None = Field(None, description="where sentences may stop earlier")
    candidates: Annotated[int, Field(ge=1)] | None
    repetitions_removed: Removal
    p_value: Share | None = Field(description="for the difference from the baseline in the main metric")
    control_difference: float | None = Field(
        None, description="in the main metric from the control row, which differs in the refining search alone"
    )
    control_p_value: Share | None = Field(None, description="for the difference from the control row")
    energy_per_sentence: float | None = Field(None, description="-log p(y|x) in nats, where an analysis measured it")
    energy_per_token: float | None = Field(None, description="in nats, end symbols counted")
    latency_ms: Positive | None
    latency_std: Annotated[float, Field(ge=0)] | None = Field(description="standard deviation over sentences")
    latency_rounds: tuple[Positive, ...] | None = Field(description="the median over sentences of each round")
    disturbed_rounds: tuple[int, ...] | None = Field(
        None, description="numbers of those rounds, from 1, that other load disturbed"
    )
    sentences_per_second: Positive | None
    speedup: Positive | None
    device: str | None
    threads: Annotated[int, Field(ge=1)] | None
    batch: Annotated[int, Field(ge=1)] | None

    def removal(self, removed: Removal | None = None) -> Removal:
        """The repetitions that are removed in tables with the setting `removed`, see `config.experiment.removal`."""
        return removal(self.autoregressive, self.means_repetitions, removed)

    def figure(self, metric: Metric) -> float | None:
        """The figure of a metric; None where it was not measured."""
        value: float | None = getattr(self, metric.name, None)
        return value

    @property
    def quality(self) -> float:
        """The figure of the main metric."""
        value: float = getattr(self, main_metric().name)
        return value

    def interval(self, metric: Metric) -> tuple[float, float] | None:
        """The interval of a metric's figure; None where it has none."""
        value: tuple[float, float] | None = getattr(self, f"{metric.name}_ci", None)
        return value

    def p_of(self, metric: Metric) -> float | None:
        """The p-value of the difference from the baseline in a metric; None where it was not tested."""
        value: float | None = getattr(self, p_key(metric), None)
        return value

    @model_validator(mode="after")
    def _intervals_rise(self):
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name.endswith("_ci") and value and value[0] > value[1]:
                raise ConfigError(name, list(value), allowed="[low, high] with low not above high")
        return self


def p_key(metric: Metric) -> str:
    """The key of the p-value of a metric's difference from the baseline."""
    return "p_value" if metric == main_metric() else f"{metric.name}_p_value"


def score_keys(measured: Iterable[Metric]) -> dict[str, Any]:
    """Keys of figures of metrics and of their intervals in a row, with their types and defaults."""
    keys: dict[str, Any] = {}
    for metric in measured:
        low, high = metric.bounds
        within = Annotated[float, Field(ge=low, le=high)]
        keys[metric.name] = (within, ...) if metric == main_metric() else (within | None, None)
        if metric.uncertainty:
            keys[f"{metric.name}_ci"] = (tuple[within, within] | None, None)
            if metric != main_metric():
                keys[p_key(metric)] = (Share | None, None)
    return keys


@functools.cache
def row_type(measured: tuple[Metric, ...]) -> type[Row]:
    """A class of rows with figures of metrics."""
    return pydantic.create_model("ScoredRow", __base__=Row, **score_keys(measured))


TIMED = ("latency_ms", "latency_std", "latency_rounds", "sentences_per_second", "speedup", "batch")


class TestSetResults(Strict):
    """Rows of a test set other than the main one, without speed."""

    split: str = Field(min_length=1)
    signatures: dict[str, str] = Field(description="of metrics, by their titles")
    rows: tuple[SerializeAsAny[Row], ...]


class Results(Strict):
    """The content of results.json. `results_type` adds the figures of metrics to its rows."""

    rows: tuple[SerializeAsAny[Row], ...]
    metrics: tuple[str, ...] | None = Field(None, description="metrics of figures in rows; null: the default ones")
    further: tuple[SerializeAsAny[TestSetResults], ...] = Field((), description="rows of further test sets")

    format: int
    experiment: str = Field(min_length=1)
    dataset: str = Field(min_length=1)
    source: str = Field(min_length=1, description="code of the language")
    target: str = Field(min_length=1, description="code of the language")
    split: str = Field(min_length=1, description="split of the rows")
    reference: tuple[str, str] | None = Field(description="system and name of the row that others are compared with")
    systems: tuple[TrainedSystem, ...] = Field(description="one for each system and seed")
    provenance: dict[str, Any]


RowKey = tuple[str, str, int]
# Differences by metric, of a row (system, name, seed) from an autoregressive one.
Pairs = Mapping[tuple[RowKey, RowKey], Mapping[str, PairedDifference]]


@dataclasses.dataclass(frozen=True)
class Significance:
    """The content of significance.json: the test, and comparisons by system, name and seed of a row.

    `rows` are comparisons with baselines, `controls` with control rows, which differ in the refining search alone,
    `pairs` with every autoregressive row. `sentences` is the size of the test set.
    """

    test: dict[str, Any]
    sentences: int
    rows: Mapping[RowKey, dict[str, Any]]
    controls: Mapping[RowKey, dict[str, Any]]
    pairs: Pairs


@dataclasses.dataclass(frozen=True)
class Choice:
    """The settings chosen on dev for a decode and seed, and the tried points: settings, figures and `mean_steps`.

    `at_edge`: a sentence for each setting that was chosen at the edge of its values. `metric` is the deciding one.
    """

    decode: ShownDecode
    seed: int
    chosen: dict[str, Any]
    points: list[dict[str, Any]]
    at_edge: Sequence[str] = ()
    metric: Metric = dataclasses.field(default_factory=main_metric)

    @property
    def quality(self) -> float:
        """The main metric of the chosen settings."""
        figure: float = chosen_point(self.points, self.chosen)[main_metric().name]
        return figure


def read_significance(path: str | Path) -> Significance:
    """The content of significance.json. Raises ArtifactError for another format, or without the test or the pairs."""
    content = read_json(path)
    check_format(content, significance.FORMAT, str(path), AGAIN_COMPARED)
    if not {"test", "sentences", "against_autoregressive"} <= content.keys():
        raise ArtifactError(path, "has no test or no pairs of rows", AGAIN_COMPARED)

    def by_row(rows: Iterable[dict[str, Any]]) -> dict[RowKey, dict[str, Any]]:
        return {(row["system"], row["name"], row["seed"]): row for row in rows}

    networks = [row for name in controls() for row in content.get(f"against_{name}", [])]
    pairs = {
        ((row["system"], row["name"], row["seed"]), (rival["system"], rival["name"], row["seed"])): {
            figure: PairedDifference(**value) for figure, value in rival.items() if figure not in ("system", "name")
        }
        for row in content["against_autoregressive"]
        for rival in row["against"]
    }
    return Significance(content["test"], content["sentences"], by_row(content["rows"]), by_row(networks), pairs)


def signature_tokeniser(signature: str) -> str:
    """The tokeniser in a signature of sacreBLEU."""
    return next((part.partition(":")[2] for part in signature.split("|") if part.startswith("tok:")), "13a")


def metrics_by_name(names: Iterable[str]) -> tuple[Metric, ...]:
    """The metrics of the names; one that is not declared has its name as its title."""
    declared = metrics()
    return tuple(declared.get(name) or Metric(name=name, title=name) for name in names)


@functools.cache
def results_type(measured: tuple[Metric, ...]) -> type[Results]:
    """A class of results whose rows have figures of metrics."""
    rows = rows_field(measured)
    test_set_type: Any = pydantic.create_model("ScoredTestSetResults", __base__=TestSetResults, rows=rows)
    return pydantic.create_model("ScoredResults", __base__=Results, rows=rows, further=(tuple[test_set_type, ...], ()))


def rows_field(measured: tuple[Metric, ...]) -> Any:
    """A field of rows with figures of metrics, for `pydantic.create_model`."""
    kind: Any = row_type(measured)
    return tuple[kind, ...], ...


def validate(content: Any, where: str) -> Results:
    """`content` as checked Results. Raises ArtifactError that names the first wrong key and its value."""
    check_format(content, FORMAT, where, AGAIN)
    names = content.get("metrics")
    are_names = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    try:
        measured = metrics_by_name(names) if are_names else default_metrics()
    except pydantic.ValidationError as failure:
        reason = str(config_error(failure, None, "metrics", "metrics")).removesuffix(".")
        raise ArtifactError(where, f"cannot be used ({reason})", AGAIN) from None
    return checked(results_type(measured), content, where, AGAIN)


def write_results(path: str | Path, content: dict[str, Any]) -> Results:
    """Check `content` against the schema, then write it as JSON. Nothing is written when a check fails."""
    results = validate(content, str(path))
    absent = {name for name in ("metrics", "further") if not getattr(results, name)}
    write_json(path, results.model_dump(mode="json", exclude=absent))
    return results


def read_results(path: str | Path) -> Results:
    """Results from a file, checked. Raises ArtifactError when it is missing, damaged or breaks the schema."""
    return validate(read_json(path), str(path))


def results_path(named: str | Path) -> Path:
    """The results.json of an experiment, from its name, its folder, its report's folder, or the file's path.

    Raises ArtifactError where there is none.
    """
    path = Path(named)
    places = [path / RESULTS, path / "report" / RESULTS, Path("results", path, "report", RESULTS)]
    files = [place for place in ([path] if path.suffix == ".json" else places) if place.is_file()]
    if not files:
        raise ArtifactError(named, "has no results", f"name a finished experiment, its folder, or a {RESULTS}")
    return files[0]


def table_split(manifest: Manifest) -> str:
    """The split of the tables: the main test set, or dev where the experiment decodes nothing else."""
    return manifest.test_sets[0] if any(row.split == manifest.test_sets[0] for row in manifest.rows) else "dev"


def build_rows(
    manifest: Manifest,
    qualities: Mapping[str, dict[str, Any]],
    speed: Speed | None,
    split: str,
    significance: Significance | None = None,
    where: str = "results.json",
    energies: RowEnergies | None = None,
) -> tuple[Row, ...]:
    """Schema rows, in the experiment's order.

    `qualities` maps quality files to their contents. There is one row of an autoregressive decode, with repetitions,
    and one for each of REMOVALS of others. Speed is measured once for a system and decode, and is in the rows of all
    seeds; p-values are those of a test set, against the row's baseline and control. `energies` are those of one split
    and of one variant of a row. Raises ArtifactError, which names `where`, for a figure that breaks the schema.
    """
    tested = significance if split in manifest.test_sets else None
    times = {row.key: row for row in speed.rows} if speed else {}
    measured = _energies(energies, split)
    rows = []
    for entry in manifest.rows:
        if entry.split != split:
            continue
        decode = manifest.decode(*entry.key)
        timed = times.get(entry.key)
        common = _described(entry, decode, qualities[entry.quality]) | {
            "device": speed.protocol.device if speed and timed else None,
            "threads": speed.protocol.threads if speed and timed else None,
            "disturbed_rounds": speed.protocol.disturbed if speed and timed else None,
            **{key: getattr(timed, key) if timed else None for key in TIMED},
        }
        for removed in ("none",) if decode.system.family.autoregressive else REMOVALS:
            variant = VARIANTS[removed]
            scored = qualities[entry.quality][variant]
            compared = _compared(tested, (*entry.key, entry.seed), variant, manifest.metrics)
            scores = {key: scored.get(key) for key in score_keys(manifest.metrics)}
            scores |= measured.get((*entry.key, entry.seed, removed), {})
            rows.append(common | scores | compared | {"repetitions_removed": removed})
    some_rows = pydantic.create_model("Rows", rows=rows_field(manifest.metrics))
    content: Any = checked(some_rows, {"rows": rows}, where, AGAIN)
    return tuple(content.rows)


def _energies(energies: RowEnergies | None, split: str) -> dict[tuple[str, str, int, str], dict[str, float | None]]:
    """Energies of rows, by system, name, seed and removal; empty for another split."""
    rows = energies.rows if energies and energies.split == split else ()
    return {
        (row.system, row.name, row.seed, row.repetitions_removed): {
            "energy_per_sentence": row.per_sentence,
            "energy_per_token": row.per_token,
        }
        for row in rows
    }


def _described(row: ManifestRow, decode: ShownDecode, quality: dict[str, Any]) -> dict[str, Any]:
    """Entries that describe a row, without its figures."""
    system, search = decode.system, decode.search
    return {
        "name": row.name,
        "system": system.name,
        "family": system.family.name,
        "autoregressive": system.family.autoregressive,
        "means_repetitions": decode.means_repetitions,
        "preset": system.preset,
        "data": texts.kind_of(system.learnt_data),
        "seed": row.seed,
        "chosen": row.picked,
        "search": search.name,
        "title": search.title,
        "series": search.series,
        "value": decode.value,
        "engine": decode.engine.key,
        "mean_steps": quality.get("mean_steps") if search.counts or search.settings.named("stop") else None,
        # Seeds may have chosen different numbers on dev.
        "candidates": None if decode.candidates is None else search.width(row.settings),
        "settings": row.settings.model_dump(mode="json"),
    }


def _compared(
    significance: Significance | None, key: RowKey, variant: str, measured: Sequence[Metric]
) -> dict[str, float | None]:
    """A row's p-values against its baseline, and its difference from its control with its p-value."""
    main, other_metrics = measured[0], [metric for metric in measured[1:] if metric.uncertainty]
    if significance is None:
        keys = [*(p_key(metric) for metric in (main, *other_metrics)), "control_difference", "control_p_value"]
        untested: dict[str, float | None] = dict.fromkeys(keys)
        return untested
    baseline, control = significance.rows.get(key, {}), significance.controls.get(key, {})
    by_metric = {m: baseline.get("metrics", {}).get(m.name, {}) for m in other_metrics} | {main: baseline}
    return {
        **{p_key(metric): tested.get("p_value", {}).get(variant) for metric, tested in by_metric.items()},
        "control_difference": control.get("difference", {}).get(variant),
        "control_p_value": control.get("p_value", {}).get(variant),
    }
