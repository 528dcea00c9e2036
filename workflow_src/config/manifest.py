"""The manifest of a report: systems, searches, decodes and rows with everything that tables and figures say of them.

Titles, labels, order, curves and looks come from the declarations of families, searches and engines, so that tables
and figures never ask which member a row belongs to. `build` makes a manifest from the settings that the plan hands to
the rule of the report; `Manifest.json` and `Manifest.from_json` write and read one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pydantic

from workflow_src.config.experiment import ReportConfig
from workflow_src.registry import (
    ENGINE_SETTINGS,
    default_engine,
    engines,
    families,
    refinement,
    search_of,
    searches,
    settings_of,
)
from workflow_src.spec import REFINER, VECTOR_FIELD, Look, Search, SearchSettings, single

# How a member is drawn that declares no colour or no marker.
OTHER = Look("#cc79a7", "*", light="#b0568c", dark="#e49ac2")
# Keys of a decode: system and name. A curve joins the rows that differ in the series of their search only.
Key = tuple[str, str]
Picked = Callable[[str], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class SystemInfo:
    """A system: its family as tables say it, its data, and what it is built on."""

    name: str
    family: str
    title: str
    order: int
    loss_title: str
    preset: str
    data: str
    base: str | None
    autoregressive: bool
    refiner: bool
    look: Look

    @property
    def group(self) -> str:
        """The system that heads its group of table rows: the model that it refines, or itself."""
        return self.base or self.name

    @property
    def data_kind(self) -> str:
        return "raw" if self.data == "raw" else "distilled"


@dataclasses.dataclass(frozen=True)
class SearchInfo:
    """A search: `series` is the setting that its curves run over, `baseline` and `control` are names of searches.

    `traceable`: it tells the translation after every step. `borrows`: it takes the steps of another search.
    `stops`: settings by which sentences stop after different numbers of steps.
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


@dataclasses.dataclass(frozen=True)
class EngineInfo:
    """What computes a decode: `key` names it with its compute type, `library` without; `label` is for tables."""

    key: str
    library: str
    title: str
    label: str
    own: bool
    marker: str | None


@dataclasses.dataclass(frozen=True)
class DecodeInfo:
    """A decode as tables and figures show it.

    `head` is its label without `notes`, which stand in brackets: settings of its own, what dev chose. `value` is that
    of its search's series. Decodes of equal `curve` differ in that value only. `reference` is the key by which rows
    that others are compared with are ordered, None for other rows. `candidates` are those that are ranked for a
    sentence. `twin`: another system of the family refines the same model, so that labels name the system.
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
    reference: tuple[float, ...] | None
    candidates: int | None
    control: str | None
    look: Look

    @property
    def key(self) -> Key:
        return self.system.name, self.name

    @property
    def plain(self) -> bool:
        """Whether it has no settings of its own beside those that its label tells, and dev chose none."""
        return not self.notes and not self.details

    def label(self, mean_steps: float | None = None) -> str:
        """What it is called in tables; `mean_steps` are those that sentences used."""
        notes = ", ".join([*self.details, *self.notes])
        used = f"; {mean_steps:.1f} steps used" if self.notes and mean_steps is not None else ""
        label = f"{self.head} ({notes}{used})" if notes else self.head
        return f"{label} ({self.system.name})" if self.twin else label


@dataclasses.dataclass(frozen=True)
class RowInfo:
    """One translation: a decode with a seed, on a split. `settings` are those that it was decoded with."""

    system: str
    name: str
    seed: int
    split: str
    quality: str
    settings: dict[str, Any]
    chosen: str | None = None
    picked: dict[str, Any] | None = None

    @property
    def key(self) -> Key:
        return self.system, self.name


@dataclasses.dataclass(frozen=True)
class TrainingInfo:
    """A trained system with the files that tell how its training went."""

    system: str
    seed: int
    log: str
    config: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a report is about."""

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

    @functools.cached_property
    def _by_key(self) -> dict[Key, DecodeInfo]:
        return {decode.key: decode for decode in self.decodes}

    def system(self, name: str) -> SystemInfo:
        return next(system for system in self.systems if system.name == name)

    def search(self, name: str) -> SearchInfo:
        return next(search for search in self.searches if search.name == name)

    def decode(self, system: str, name: str) -> DecodeInfo | None:
        """The decode of a row, or None where the experiment has no such row."""
        return self._by_key.get((system, name))

    def title(self, search: str) -> str:
        """What a search is called; one that nobody declares any more has its name as its title."""
        return next((one.title for one in self.searches if one.name == search), search)

    def look(self, system: str, search: str) -> Look:
        """How a search of a system is drawn."""
        systems = (one.look for one in self.systems if one.name == system)
        looks = (one.look for one in self.searches if one.name == search)
        return resolved(next(looks, OTHER), next(systems, OTHER))

    @property
    def reference(self) -> DecodeInfo | None:
        """The decode that others are compared with; None where the experiment has none."""
        keyed = [d for d in self.decodes if d.reference is not None and d.engine.own]
        return max(keyed, key=lambda d: (*d.reference, d.system.name == "teacher"), default=None)

    @property
    def start(self) -> SearchInfo | None:
        """The search from which refinement starts: the baseline of those that can be followed."""
        names = [d.search.baseline for d in self.decodes if d.search.traceable and d.search.baseline]
        names += [search.baseline for search in self.searches if search.traceable and search.baseline]
        return self.search(names[0]) if names else None

    @property
    def palette(self) -> tuple[Look, ...]:
        """Looks of all systems and searches, one for each colour."""
        looks = [system.look for system in self.systems] + [search.look for search in self.searches] + [OTHER]
        return tuple({look.colour: look for look in reversed(looks) if look.colour}.values())

    def json(self) -> str:
        return _adapter().dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Raises pydantic.ValidationError for text that is no manifest."""
        return _adapter().validate_json(text)


@functools.cache
def _adapter() -> pydantic.TypeAdapter[Manifest]:
    return pydantic.TypeAdapter(Manifest)


def engine_of(settings: Mapping[str, Any]) -> str:
    """What computes a decode: our own code, or an engine with its compute type, such as `ctranslate2-int8`."""
    own = default_engine().name
    engine = settings.get("engine") or own
    return engine if engine == own else f"{engine}-{settings['compute_type']}"


def engine_info(key: str) -> EngineInfo:
    """An engine by what `engine_of` says; one that nobody declares has its own name as its title."""
    library, _, compute_type = key.partition("-")
    engine = engines().get(library)
    title = engine.title if engine else library
    marker = engine.look.marker if engine else None
    return EngineInfo(key, library, title, f"{title} {compute_type}".strip(), key == default_engine().name, marker)


def search_info(search: Search) -> SearchInfo:
    settings = search.settings
    return SearchInfo(
        search.name, search.title, search.series, search.traceable, bool(settings.named("steps")), search.baseline,
        search.control, settings.named("stop"), search.look,
    )  # fmt: skip


def network_families() -> tuple[str, ...]:
    """Names of the families of networks that refine; tables put them side by side."""
    return tuple(name for name, family in families().items() if REFINER in family.traits)


def compared_steps() -> tuple[tuple[str, str], ...]:
    """Searches whose steps are compared: the control, and the search of a network that is itself the direction."""
    networks = (family.searches[0] for family in families().values() if VECTOR_FIELD in family.traits)
    pairs = ((searches()[name].control, name) for name in networks)
    return tuple(dict.fromkeys((control, name) for control, name in pairs if control))


def resolved(search: Look, family: Look, engine: str | None = None) -> Look:
    """How a row is drawn: in the colour of its search or else of its family, with the marker of its engine."""
    look = next((one for one in (search, family) if one.colour), OTHER)
    return dataclasses.replace(look, marker=engine or search.marker or OTHER.marker)


def words(settings: Mapping[str, Any], values: bool = True) -> str:
    """Settings in words: `length quantile 0.6`, or their names only."""
    told = (name.replace("_", " ") + (f" {_number(value)}" if values else "") for name, value in settings.items())
    return ", ".join(told)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def build(content: Mapping[str, Any], read_chosen: Picked = lambda path: {}) -> Manifest:
    """The manifest of a report from the settings of its rule.

    `read_chosen` gives the settings that dev chose, by the path of their file. Raises ValueError for a search that
    nobody declares, or settings that it has not.
    """
    systems = {name: _system(name, system) for name, system in content["systems"].items()}
    rows = []
    for entry in content["rows"]:
        picked = dict(read_chosen(entry["chosen"])) if "chosen" in entry else None
        rows.append(RowInfo(**{**entry, "settings": entry["settings"] | (picked or {})}, picked=picked))
    by_key: dict[Key, list[RowInfo]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    common = {key: content[key] for key in ("experiment", "description", "recipe", "dataset", "source", "target")}
    return Manifest(
        **common,
        dataset_terms=content.get("dataset_terms", {}),
        report=ReportConfig.model_validate(content["report"]),
        systems=tuple(systems.values()),
        searches=tuple(map(search_info, searches().values())),
        decodes=tuple(_decode(systems[key[0]], of, systems.values()) for key, of in by_key.items()),
        rows=tuple(rows),
        training=tuple(TrainingInfo(**entry) for entry in content["training"]),
    )


def _system(name: str, entry: Mapping[str, Any]) -> SystemInfo:
    family = families()[entry["family"]]
    return SystemInfo(
        name, family.name, family.title, family.order, family.loss_title, entry["preset"], entry["data"], entry["base"],
        family.autoregressive, REFINER in family.traits, family.look,
    )  # fmt: skip


def _decode(system: SystemInfo, rows: Sequence[RowInfo], systems: Collection[SystemInfo]) -> DecodeInfo:
    """A decode from its rows, one a seed and split, whose settings differ in what dev chose for each."""
    every = [settings_of(row.settings) for row in rows]
    values, first = every[0], rows[0]
    search, engine = search_of(values), engine_info(engine_of(first.settings))
    picked = [row.picked for row in rows if row.picked]
    chosen = []
    if picked:
        # Seeds that chose different values share a row, which then tells the settings only.
        chosen = [f"chosen: {words(picked[0], all(one == picked[0] for one in picked))}"]
    elif search.details is None and first.name != _plain_name(search, values, first.settings):
        chosen = [first.name]
    label = _common([search.row_label(one) for one in every])
    refining = refinement(values)
    return DecodeInfo(
        system=system,
        search=search_info(search),
        engine=engine,
        name=first.name,
        head=label if engine.own else f"{label}, {engine.label}",
        notes=tuple(chosen),
        details=tuple(search.details(values)) if search.details else (),
        value=getattr(values, search.series) if search.series else None,
        curve=_curve(system, search, values, first, engine),
        tuned=bool(picked),
        twin=sum(o.base is not None and (o.base, o.family) == (system.base, system.family) for o in systems) > 1,
        reference=tuple(map(float, search.reference(values))) if search.reference else None,
        candidates=search.width(values) if search.width is not single and not search.series else None,
        control=refining.control if refining else None,
        look=resolved(search.look, system.look, engine.marker),
    )


def _plain_name(search: Search, values: SearchSettings, handed: Mapping[str, Any]) -> str:
    """The name of a decode that has no settings but those that every decode of the search says."""
    parts = "".join(values.name_part(name) for name in type(values).model_fields if values.option(name).always)
    return search.name + parts + "".join(f"-{handed[key]}" for key in ENGINE_SETTINGS if key in handed)


def _curve(system: SystemInfo, search: Search, values: SearchSettings, row: RowInfo, engine: EngineInfo) -> str:
    """What rows that a curve joins have in common: all settings but the series; names of those that dev chose."""
    if search.series is None:
        return f"{system.name} {row.name}"
    free = {search.series, *(row.picked or {})}
    kept = {name: value for name, value in values.model_dump(mode="json").items() if name not in free}
    return f"{system.name} {search.name} {engine.key} {sorted(kept.items())} {sorted(row.picked or {})}"


def _common(labels: Sequence[str]) -> str:
    """One label for the seeds of a row: words in which theirs differ are left out."""
    split = [label.split(" ") for label in labels]
    if any(len(parts) != len(split[0]) for parts in split):
        return labels[0]
    return " ".join(parts[0] if len(set(parts)) == 1 else "…" for parts in zip(*split, strict=True))
