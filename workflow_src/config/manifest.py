"""The manifest of a report: systems, searches, decodes and rows with all that tables and figures show of them.

Titles, labels, order, curves and looks come from the declarations of families, searches and engines, so that tables
and figures never test which member a row belongs to. `display.build` makes a manifest from the settings that the plan
hands to the rule of the report.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workflow_src.config.datasets import TEST
from workflow_src.config.experiment import Removal, ReportConfig, removal
from workflow_src.spec import Look, Metric

# How a member is drawn that declares no colour or no marker.
OTHER = Look("#cc79a7", "*", light="#b0568c", dark="#e49ac2")
# Keys of a decode: system and name. A curve joins the rows that differ in the series of their search only.
Key = tuple[str, str]


def words(settings: Mapping[str, Any], values: bool = True) -> str:
    """Settings in words: `length quantile 0.6`, or their names only. A setting that is true is its name alone."""
    parts = (
        name.replace("_", " ") + (f" {_number(value)}" if values and value is not True else "")
        for name, value in settings.items()
    )
    return ", ".join(parts)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def differing(entry: Mapping[str, Any], entries: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, Any]:
    """The settings among `names` in which an entry of an analysis differs from another entry of its search."""
    twins = [other for other in entries if other["search"] == entry["search"]]
    return {name: entry[name] for name in names if name in entry and any(o.get(name) != entry[name] for o in twins)}


@dataclasses.dataclass(frozen=True)
class SystemInfo:
    """A system: its family as in tables, its training texts and their kind in words, and its base."""

    name: str
    family: str
    title: str
    order: int
    loss_title: str
    preset: str
    data: str
    data_kind: str
    base: str | None
    autoregressive: bool
    refiner: bool
    look: Look
    # It reads targets and writes sources.
    reversed: bool = False

    @property
    def group(self) -> str:
        """The system that heads its group of table rows: the model that it refines, or itself."""
        return self.base or self.name


@dataclasses.dataclass(frozen=True)
class SearchInfo:
    """A search: `series` is the setting that its curves run over, `baseline` and `control` are names of searches.

    `traceable`: it gives the translation after every step. `borrows`: it takes the steps of another search.
    `stops`: settings by which sentences stop after different numbers of steps. `first_value` of the series is that
    without any refinement. `moves`: its steps move latents. `kept`: settings that analyses keep of it.
    """

    name: str
    title: str
    series: str | None
    traceable: bool
    borrows: bool
    baseline: str | None
    control: str | None
    stops: tuple[str, ...]
    look: Look
    first_value: int = 0
    moves: bool = False
    kept: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class EngineInfo:
    """An engine: `key` names it with its compute type, `library` without; `label` is for tables."""

    key: str
    library: str
    title: str
    label: str
    own: bool
    marker: str | None

    @property
    def kind(self) -> str:
        """Group of engines whose times are comparable: our own, or others that compute as precisely."""
        return "" if self.own else self.key.partition("-")[2] or "default precision"

    @property
    def kind_words(self) -> str:
        return f"optimised engines ({self.kind})" if self.kind else "PyTorch"


@dataclasses.dataclass(frozen=True)
class DecodeInfo:
    """A decode as tables and figures show it.

    `head` is its label without `notes`, which stand in brackets: what dev chose, and `own`, its settings one by one.
    `value` is that of its search's series. Decodes of equal `curve` differ in that value only. `reference`: others
    are compared with it. `candidates` are those that are ranked for
    a sentence. `twin`: another system of the family refines the same model, so that labels name the system. `aligned`:
    its outputs are read off alignments.
    """

    system: SystemInfo
    search: SearchInfo
    engine: EngineInfo
    name: str
    head: str
    notes: tuple[str, ...]
    details: tuple[str, ...]
    value: float | None
    curve: str
    tuned: bool
    twin: bool
    reference: bool
    candidates: int | None
    control: str | None
    look: Look
    aligned: bool = False
    own: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return self.system.name, self.name

    @property
    def colour(self) -> str:
        assert self.look.colour, "a resolved look has a colour"
        return self.look.colour

    def removal(self, configured: Removal | None) -> Removal:
        """The repetitions that are removed from its outputs, where the report sets `configured`."""
        return removal(self.system.autoregressive, self.aligned, configured)

    @property
    def plain(self) -> bool:
        """True for a decode whose label has all of its own settings, none of them chosen on dev."""
        return not self.notes and not self.details

    def label(self, mean_steps: float | None = None) -> str:
        """Its label in tables; `mean_steps` is the mean number of steps that sentences used."""
        notes = ", ".join([*self.details, *self.notes])
        steps_used = (
            f"; {mean_steps:.1f} {self.search.series or 'steps'} used" if self.notes and mean_steps is not None else ""
        )
        label = f"{self.head} ({notes}{steps_used})" if notes else self.head
        return f"{label} ({self.system.name})" if self.twin else label

    def short(self, own: Sequence[str] = ()) -> str:
        """Its label for figures, with the settings `own` in brackets."""
        label = f"{self.head} ({', '.join(own)})" if own else self.head
        return f"{label} ({self.system.name})" if self.twin else label


@dataclasses.dataclass(frozen=True)
class RowInfo:
    """One translation: a decode with a seed, on a split. `settings` are the settings of the decode.

    `aligned`: its outputs are read off alignments.
    """

    system: str
    name: str
    seed: int
    split: str
    quality: str
    settings: dict[str, Any]
    chosen: str | None = None
    picked: dict[str, Any] | None = None
    aligned: bool = False

    @property
    def key(self) -> Key:
        return self.system, self.name


@dataclasses.dataclass(frozen=True)
class TrainingInfo:
    """A trained system with the files of its training: the log, and the configuration of its weights."""

    system: str
    seed: int
    log: str
    config: str


@dataclasses.dataclass(frozen=True)
class GridCell:
    """A system in a grid, and the systems in its roles that score outputs: its energy is shown under the first of them
    that it was measured under, or else under any."""

    system: str
    scorers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class GridInfo:
    """A table over two settings of a family's systems.

    `rows` and `columns` are values of the settings in words; `cells` has a row of cells for each value of `rows`, None
    where no system has the two values; `published` has their published figures, if any.
    """

    title: str
    family: str
    row_setting: str
    column_setting: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[GridCell | None, ...], ...]
    published: tuple[tuple[str, ...], ...] | None = None


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Systems, searches, decodes and rows of a report."""

    experiment: str
    description: str
    recipe: str
    dataset: str
    dataset_terms: dict[str, str]
    source: str
    target: str
    report: ReportConfig
    systems: tuple[SystemInfo, ...]
    searches: tuple[SearchInfo, ...]
    decodes: tuple[DecodeInfo, ...]
    rows: tuple[RowInfo, ...]
    training: tuple[TrainingInfo, ...]
    # Metrics of the translations, the main one first.
    metrics: tuple[Metric, ...]
    grids: tuple[GridInfo, ...] = ()
    # Test sets, the main one first; and the number of references by split, where a source has several.
    test_sets: tuple[str, ...] = (TEST,)
    references: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def on(self, test_set: str) -> Manifest:
        """The manifest for tables of another test set than the main one, of which no figures were published."""
        report = self.report.model_copy(update={"expected": {}})
        return dataclasses.replace(self, report=report, test_sets=(test_set,))

    def head(self, metric: Metric) -> str:
        """The heading of a metric's column in tables of the main test set."""
        several = self.references.get(self.test_sets[0], 1) > 1
        return f"{metric.head}, first reference" if several and metric.references == "first" else metric.head

    @functools.cached_property
    def _decodes_by_key(self) -> dict[Key, DecodeInfo]:
        return {decode.key: decode for decode in self.decodes}

    @property
    def main(self) -> Metric:
        """The metric by which rows are compared and drawn."""
        return self.metrics[0]

    @property
    def published(self) -> Metric:
        """The metric that counts as published figures do."""
        return next(m for m in self.metrics if m.convention and m.convention.name == self.report.expected_convention)

    def system(self, name: str) -> SystemInfo:
        return next(system for system in self.systems if system.name == name)

    def search(self, name: str) -> SearchInfo:
        return next(search for search in self.searches if search.name == name)

    def decode(self, system: str, name: str) -> DecodeInfo:
        """The decode of a row of the experiment."""
        return self._decodes_by_key[system, name]

    def find_decode(self, system: str, name: str) -> DecodeInfo | None:
        """The decode of a row, or None where the experiment has no such row."""
        return self._decodes_by_key.get((system, name))

    def title(self, search: str) -> str:
        """The title of a search; its name where it is not declared."""
        return next((info.title for info in self.searches if info.name == search), search)

    def kept(self, search: str) -> tuple[str, ...]:
        """Settings that analyses keep of a search; none where it is not declared."""
        return next((info.kept for info in self.searches if info.name == search), ())

    def look(self, system: str, search: str) -> Look:
        """How a search of a system is drawn."""
        systems = (info.look for info in self.systems if info.name == system)
        looks = (info.look for info in self.searches if info.name == search)
        return resolved(next(looks, OTHER), next(systems, OTHER))

    @property
    def reference(self) -> DecodeInfo | None:
        """The decode that others are compared with; None where the experiment has none."""
        return next((decode for decode in self.decodes if decode.reference), None)

    @property
    def start(self) -> SearchInfo | None:
        """The search from which refinement starts: the baseline of those that can be followed, of latents first."""
        searches = [*(decode.search for decode in self.decodes), *self.searches]
        followed = [search for search in searches if search.traceable and search.baseline]
        first = next((search for search in followed if search.moves), next(iter(followed), None))
        return self.search(first.baseline) if first and first.baseline else None

    @property
    def aligned(self) -> frozenset[bool]:
        """Values of `aligned` among decodes that are not autoregressive: both where some are read off alignments."""
        return frozenset(decode.aligned for decode in self.decodes if not decode.system.autoregressive)

    @property
    def palette(self) -> tuple[Look, ...]:
        """Looks of all systems and searches, one for each colour."""
        looks = [system.look for system in self.systems] + [search.look for search in self.searches] + [OTHER]
        return tuple({look.colour: look for look in reversed(looks) if look.colour}.values())


def resolved(search: Look, family: Look, engine: str | None = None) -> Look:
    """How a row is drawn: in the colour of its search or else of its family, with the marker of its engine."""
    look = next((entry for entry in (search, family) if entry.colour), OTHER)
    return dataclasses.replace(look, marker=engine or search.marker or OTHER.marker)
