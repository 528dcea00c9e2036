"""What a report shows: the systems, decodes and rows of a resolved experiment, with their labels, curves and looks.

Titles, order and looks come from the declarations of families, searches and engines, so that tables and figures never
test which member a row belongs to.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workflow_src.config.experiment import Removal, ReportConfig, removal
from workflow_src.config.plan import Plan
from workflow_src.config.plan.grids import GridInfo
from workflow_src.config.resolved import Decode, System
from workflow_src.config.roles import refinement
from workflow_src.evaluation.labels import changed, common_label, words
from workflow_src.registry import default_engine, engines, search_of, searches
from workflow_src.spec import Convention, Engine, Look, Metric, Search, SearchSettings
from workflow_src.spec.fields import Marker

# How a member is drawn that declares no colour or no marker.
OTHER = Look("#546e7a", "*", dark="#90a4ae")
# Keys of a decode: system and name. A curve joins the rows that differ in the series of their search only.
Key = tuple[str, str]
ReadChosen = Callable[[str], Mapping[str, Any]]


def resolved(search: Look, family: Look, engine: Marker | None = None) -> Look:
    """How a row is drawn: in the colour of its search or else of its family, with the marker of its engine."""
    look = next((entry for entry in (search, family) if entry.colour), OTHER)
    return dataclasses.replace(look, marker=engine or search.marker or OTHER.marker)


@dataclasses.dataclass(frozen=True)
class EngineKey:
    """An engine with its compute type by the key that names both, such as `ctranslate2-int8`; it may be undeclared."""

    key: str

    @property
    def library(self) -> str:
        """The name of the engine, without its compute type."""
        return self.key.partition("-")[0]

    @property
    def declared(self) -> Engine | None:
        return engines().get(self.library)

    @property
    def title(self) -> str:
        return self.declared.title if self.declared else self.library

    @property
    def label(self) -> str:
        """Its title with its compute type, for tables."""
        return f"{self.title} {self.key.partition('-')[2]}".strip()

    def named(self, label: str) -> str:
        """The label of a row that it computes, which names another engine than our own."""
        return label if self.own else f"{label}, {self.label}"

    @property
    def own(self) -> bool:
        return self.key == default_engine().name

    @property
    def marker(self) -> Marker | None:
        return self.declared.look.marker if self.declared else None

    @property
    def kind(self) -> str:
        """Group of engines whose times are comparable: our own, or others that compute as precisely."""
        return "" if self.own else self.key.partition("-")[2] or "default precision"

    @property
    def kind_words(self) -> str:
        return f"optimised engines ({self.kind})" if self.kind else "PyTorch"


@dataclasses.dataclass(frozen=True)
class Row:
    """One translation: a decode with a seed, on a split. `picked` are the settings that dev chose, if it chose any.

    `quality` and `chosen` are the files of its scores and of that choice.
    """

    decode: Decode
    seed: int
    split: str
    quality: str
    chosen: str | None = None
    picked: Mapping[str, Any] | None = None

    @property
    def system(self) -> str:
        return self.decode.system

    @property
    def name(self) -> str:
        return self.decode.name

    @property
    def key(self) -> Key:
        return self.system, self.name

    @functools.cached_property
    def settings(self) -> SearchSettings:
        """The settings that it was decoded with. Raises ConfigError for chosen ones that the search has not."""
        return self.decode.with_values(self.picked or {}).values


@dataclasses.dataclass(frozen=True)
class ShownDecode:
    """A decode as tables and figures show it, with its rows, one for each seed and split.

    `reference`: others are compared with it. `twin`: another system of the family refines the same model, so that
    labels name the system. `means_repetitions`: equal neighbours in its outputs are meant.
    """

    decode: Decode
    system: System
    rows: tuple[Row, ...]
    means_repetitions: bool = False
    reference: bool = False
    twin: bool = False

    @property
    def name(self) -> str:
        return self.decode.name

    @property
    def key(self) -> Key:
        return self.rows[0].key

    @property
    def settings(self) -> SearchSettings:
        """The settings of its first row; seeds differ in those that dev chose."""
        return self.rows[0].settings

    @property
    def search(self) -> Search:
        return search_of(self.settings)

    @property
    def engine(self) -> EngineKey:
        return EngineKey(self.decode.engine_word)

    @property
    def autoregressive(self) -> bool:
        return self.system.family.autoregressive

    @property
    def tuned(self) -> bool:
        return bool(self.rows[0].picked)

    @functools.cached_property
    def head(self) -> str:
        """Its label without what stands in brackets."""
        return self.engine.named(common_label([self.search.row_label(row.settings) for row in self.rows]))

    @functools.cached_property
    def own(self) -> tuple[str, ...]:
        """Words that set it apart from others of its search: its `name`, else its settings.

        Left out are settings that all decodes of the search share, those in its label, and those that dev chose.
        """
        picked, engine = self.rows[0].picked, "" if self.decode.own_engine else f"-{self.engine.key}"
        if not picked and self.name != f"{self.search.name}{self.settings.name_parts()}{engine}":
            return (self.name,)
        settings = changed(self.search, self.settings, without=picked or ())
        return tuple(words({name: value}) for name, value in settings.items())

    @functools.cached_property
    def notes(self) -> str:
        """What stands in brackets behind its label: `own`, and what dev chose."""
        own, choices = ", ".join(self.own), [row.picked for row in self.rows if row.picked]
        if not choices:
            return own
        # Seeds that chose different values share a row, which then names the settings only.
        chosen = f"chosen: {words(choices[0], all(choice == choices[0] for choice in choices))}"
        return f"{own}; {chosen}" if own else chosen

    @functools.cached_property
    def details(self) -> tuple[str, ...]:
        """Words that its search puts in brackets for the settings of every seed."""
        if not self.search.details:
            return ()
        lists = [self.search.details(row.settings) for row in self.rows]
        return tuple(text for text in lists[0] if all(text in other for other in lists))

    @property
    def value(self) -> float | None:
        """The value of the series of its search."""
        return getattr(self.settings, self.search.series) if self.search.series else None

    @property
    def curve(self) -> str:
        """Key that is equal for decodes of one curve: all settings but the series; names of those that dev chose."""
        if self.search.series is None:
            return f"{self.system.name} {self.name}"
        picked = self.rows[0].picked or {}
        content = self.settings.model_dump(mode="json")
        settings = sorted((name, value) for name, value in content.items() if name not in {self.search.series, *picked})
        return f"{self.system.name} {self.search.name} {self.engine.key} {settings} {sorted(picked)}"

    @property
    def control(self) -> str | None:
        """The search that differs from the one whose steps it takes only in how it refines."""
        refining = refinement(self.settings)
        return refining.control if refining else None

    @property
    def look(self) -> Look:
        return resolved(self.search.look, self.system.family.look, self.engine.marker)

    @property
    def colour(self) -> str:
        assert self.look.colour, "a resolved look has a colour"
        return self.look.colour

    def removal(self, configured: Removal | None) -> Removal:
        """The repetitions that are removed from its outputs, where the report sets `configured`."""
        return removal(self.autoregressive, self.means_repetitions, configured)

    @property
    def plain(self) -> bool:
        """True for a decode whose label has all of its own settings, none of them chosen on dev."""
        return not self.notes and not self.details

    def label(self, mean_steps: float | None = None) -> str:
        """Its label in tables; `mean_steps` is the mean number of steps that sentences used."""
        notes = ", ".join(filter(None, [*self.details, self.notes]))
        if (notes or self.search.counts) and mean_steps is not None:
            used = f"{mean_steps:.1f} {self.search.counts or self.search.series or 'steps'} used"
            notes = f"{notes}; {used}" if notes else used
        return self._named(f"{self.head} ({notes})" if notes else self.head)

    def short(self, own: Sequence[str]) -> str:
        """Its label for figures, with the settings `own` in brackets."""
        return self._named(f"{self.head} ({', '.join(own)})" if own else self.head)

    def _named(self, label: str) -> str:
        return f"{label} ({self.system.name})" if self.twin else label


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The systems, decodes and rows that a report shows of the experiment of a plan.

    `metrics` begin with the main one, `test_sets` with the main one. `training` are the trained systems with their
    seeds.
    """

    plan: Plan
    rows: tuple[Row, ...]
    decodes: tuple[ShownDecode, ...]
    report: ReportConfig
    metrics: tuple[Metric, ...]
    test_sets: tuple[str, ...]
    training: tuple[tuple[str, int], ...]
    grids: tuple[GridInfo, ...]

    @classmethod
    def of(cls, plan: Plan, read_chosen: ReadChosen) -> Manifest:
        """The manifest of a plan; `read_chosen` gives the settings that dev chose, by the path of their file.

        Raises ConfigError for chosen settings that the search has not.
        """
        loaded, rows = plan.loaded, []
        for decode, seed, split in plan.rows:
            chosen = plan.chosen(decode, seed) if decode.tune else None
            picked = dict(read_chosen(chosen)) if chosen else None
            rows.append(Row(decode, seed, split, plan.quality(decode, seed, split), chosen, picked))
        refined = [(system.base, system.family.name) for system in loaded.systems.values()]
        decodes = []
        for decode in loaded.decodes:
            system = loaded.systems[decode.system]
            shown = ShownDecode(
                decode,
                system,
                tuple(row for row in rows if row.decode is decode),
                means_repetitions=loaded.means_repetitions(decode),
                reference=decode is plan.comparisons.reference,
                twin=bool(system.base) and refined.count((system.base, system.family.name)) > 1,
            )
            decodes.append(shown)
        return cls(
            plan,
            rows=tuple(rows),
            decodes=tuple(decodes),
            report=loaded.config.report,
            metrics=tuple(entry.metric for entry in loaded.metrics),
            test_sets=loaded.test_sets,
            training=tuple(plan.trained),
            grids=plan.grids,
        )

    def on(self, test_set: str) -> Manifest:
        """The manifest for tables of another test set than the main one, of which no figures were published."""
        report = self.report.model_copy(update={"expected": {}})
        return dataclasses.replace(self, report=report, test_sets=(test_set,))

    @property
    def dataset(self) -> str:
        return self.plan.loaded.dataset.name

    @property
    def source(self) -> str:
        return self.plan.recipe.source

    @property
    def target(self) -> str:
        return self.plan.recipe.target

    @property
    def systems(self) -> tuple[System, ...]:
        return tuple(self.plan.loaded.systems.values())

    @property
    def main(self) -> Metric:
        """The metric by which rows are compared and drawn."""
        return self.metrics[0]

    @property
    def published(self) -> Metric:
        """The metric that counts as published figures do."""
        return next(m for m in self.metrics if m.convention and m.convention.name == self.report.expected_convention)

    @property
    def convention(self) -> Convention:
        """How published figures are counted."""
        convention = self.published.convention
        assert convention, "published figures are counted by a convention"
        return convention

    def references(self, split: str) -> int:
        """The number of references of each source of a split."""
        return len(self.plan.references(split))

    def head(self, metric: Metric) -> str:
        """The heading of a metric's column in tables of the main test set."""
        several = self.references(self.test_sets[0]) > 1
        return f"{metric.head}, first reference" if several and metric.references == "first" else metric.head

    @functools.cached_property
    def _decodes_by_key(self) -> dict[Key, ShownDecode]:
        return {decode.key: decode for decode in self.decodes}

    def decode(self, system: str, name: str) -> ShownDecode:
        """The decode of a row of the experiment."""
        return self._decodes_by_key[system, name]

    def find_decode(self, system: str, name: str) -> ShownDecode | None:
        """The decode of a row, or None where the experiment has no such row."""
        return self._decodes_by_key.get((system, name))

    def title(self, search: str) -> str:
        """The title of a search; its name where it is not declared."""
        return searches()[search].title if search in searches() else search

    def look(self, system: str | None, search: str | None) -> Look:
        """How a search of a system is drawn, or the system itself; either may be unknown."""
        declared, known = searches().get(search or ""), self.plan.loaded.systems.get(system or "")
        unknown = OTHER if search else Look(marker="o")
        return resolved(declared.look if declared else unknown, known.family.look if known else OTHER)

    @property
    def reference(self) -> ShownDecode | None:
        """The decode that others are compared with; None where the experiment has none."""
        return next((decode for decode in self.decodes if decode.reference), None)

    @property
    def start_title(self) -> str:
        """The title of outputs at step 0 of analyses: of the search that searches which can be followed begin with,
        those of latents first."""
        declared = [*(decode.search for decode in self.decodes), *searches().values()]
        followed = [search for search in declared if search.traceable and search.baseline]
        first = next((search for search in followed if search.refines), next(iter(followed), None))
        return self.title(first.baseline) if first and first.baseline else "start"

    @property
    def means_repetitions(self) -> frozenset[bool]:
        """Values of `means_repetitions` among decodes that are not autoregressive: both where some are True."""
        return frozenset(decode.means_repetitions for decode in self.decodes if not decode.autoregressive)

    @property
    def palette(self) -> tuple[Look, ...]:
        """Looks of all systems and searches, one for each colour."""
        looks = [system.family.look for system in self.systems] + [search.look for search in searches().values()]
        return tuple({look.colour: look for look in reversed([*looks, OTHER]) if look.colour}.values())


def colour_class(colour: str | None) -> str:
    """CSS class, and name of the variable, of a colour of figures."""
    return f"c-{colour.removeprefix('#')}" if colour else ""
