"""How declared members are shown: words for engines and settings, and the manifest of a report from its settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pydantic

from workflow_src.config import texts
from workflow_src.config.datasets import TEST
from workflow_src.config.experiment import ReportConfig
from workflow_src.config.manifest import (
    DecodeInfo,
    EngineInfo,
    GridInfo,
    Key,
    Manifest,
    RowInfo,
    SearchInfo,
    SystemInfo,
    TrainingInfo,
    resolved,
    words,
)
from workflow_src.config.metrics import measured
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
from workflow_src.spec import REFINER, VECTOR_FIELD, Search, SearchSettings, single

ReadChosen = Callable[[str], Mapping[str, Any]]


def engine_of(settings: Mapping[str, Any]) -> str:
    """The word for the engine of a decode with its precision, such as `ctranslate2-int8`."""
    name = settings.get("engine") or default_engine().name
    return f"{name}-{kind}" if (kind := settings.get("compute_type")) else name


def engine_info(key: str) -> EngineInfo:
    """An engine by its key of `engine_of`; the title of an undeclared one is its name."""
    library, _, compute_type = key.partition("-")
    engine = engines().get(library)
    title = engine.title if engine else library
    marker = engine.look.marker if engine else None
    return EngineInfo(key, library, title, f"{title} {compute_type}".strip(), key == default_engine().name, marker)


def search_info(search: Search) -> SearchInfo:
    settings = search.settings
    return SearchInfo(
        name=search.name,
        title=search.title,
        series=search.series,
        traceable=search.traceable,
        borrows=bool(settings.named("steps")),
        baseline=search.baseline,
        control=search.control,
        stops=settings.named("stop"),
        look=search.look,
        first_value=search.first_value,
        moves=search.step is not None,
        kept=settings.named("follow"),
    )


def network_families() -> tuple[str, ...]:
    """Names of the families of networks that refine; tables put them side by side."""
    return tuple(name for name, family in families().items() if REFINER in family.traits)


def compared_steps() -> tuple[tuple[str, str], ...]:
    """Searches whose steps are compared: the control, and the search of a network that is itself the direction."""
    networks = (family.searches[0] for family in families().values() if VECTOR_FIELD in family.traits)
    pairs = ((searches()[name].control, name) for name in networks)
    return tuple(dict.fromkeys((control, name) for control, name in pairs if control))


def build(content: Mapping[str, Any], read_chosen: ReadChosen = lambda _path: {}) -> Manifest:
    """The manifest of a report from the settings of its rule.

    `read_chosen` gives the settings that dev chose, by the path of their file. Raises InputError for a search that
    is not declared, or settings that it has not.
    """
    systems = {name: _system(name, system) for name, system in content["systems"].items()}
    rows = []
    for fields in content["rows"]:
        picked = dict(read_chosen(fields["chosen"])) if "chosen" in fields else None
        rows.append(RowInfo(**{**fields, "settings": fields["settings"] | (picked or {})}, picked=picked))
    rows_by_key: dict[Key, list[RowInfo]] = {}
    for row in rows:
        rows_by_key.setdefault(row.key, []).append(row)
    reference = tuple(content.get("reference") or ())
    common = {key: content[key] for key in ("experiment", "description", "recipe", "dataset", "source", "target")}
    return Manifest(
        **common,
        dataset_terms=content.get("dataset_terms", {}),
        report=ReportConfig.model_validate(content["report"]),
        systems=tuple(systems.values()),
        searches=tuple(map(search_info, searches().values())),
        decodes=tuple(
            _decode(systems[key[0]], group, systems.values(), key == reference) for key, group in rows_by_key.items()
        ),
        rows=tuple(rows),
        training=tuple(TrainingInfo(**fields) for fields in content["training"]),
        metrics=tuple(entry.metric for entry in measured(content.get("metrics"))),
        grids=pydantic.TypeAdapter(tuple[GridInfo, ...]).validate_python(content.get("grids", ())),
        test_sets=tuple(content.get("test_sets", (TEST,))),
        references=content.get("references", {}),
    )


def _system(name: str, entry: Mapping[str, Any]) -> SystemInfo:
    family = families()[entry["family"]]
    return SystemInfo(
        name=name,
        family=family.name,
        title=family.title,
        order=family.order,
        loss_title=family.loss_title,
        preset=entry["preset"],
        data=texts.words(entry["data"]) + (" (reversed)" if entry.get("reversed") else ""),
        data_kind=texts.kind_of(entry["data"]),
        base=entry["base"],
        autoregressive=family.autoregressive,
        refiner=REFINER in family.traits,
        look=family.look,
        reversed=entry.get("reversed", False),
    )


def _decode(
    system: SystemInfo, rows: Sequence[RowInfo], systems: Collection[SystemInfo], reference: bool
) -> DecodeInfo:
    """A decode from its rows, one for each seed and split, whose settings differ in those that dev chose."""
    settings = [settings_of(row.settings) for row in rows]
    values, first = settings[0], rows[0]
    search, engine = search_of(values), engine_info(engine_of(first.settings))
    picked = [row.picked for row in rows if row.picked]
    own_words = [] if search.details else _distinguishing_words(search, values, first)
    notes = ", ".join(own_words)
    if picked:
        # Seeds that chose different values share a row, which then names the settings only.
        chosen = f"chosen: {words(picked[0], all(p == picked[0] for p in picked))}"
        notes = f"{notes}; {chosen}" if own_words else chosen
    label = common_label(list(map(search.row_label, settings)))
    refining = refinement(values)
    return DecodeInfo(
        system=system,
        search=search_info(search),
        engine=engine,
        name=first.name,
        head=label if engine.own else f"{label}, {engine.label}",
        notes=(notes,) if notes else (),
        own=tuple(own_words),
        details=_shared([search.details(entry) for entry in settings]) if search.details else (),
        value=getattr(values, search.series) if search.series else None,
        curve=_curve(system, search, values, first, engine),
        tuned=bool(picked),
        twin=sum(o.base is not None and (o.base, o.family) == (system.base, system.family) for o in systems) > 1,
        reference=reference,
        candidates=search.width(values) if search.width is not single and not search.series else None,
        control=refining.control if refining else None,
        look=resolved(search.look, system.look, engine.marker),
        aligned=first.aligned,
    )


def _distinguishing_words(search: Search, values: SearchSettings, row: RowInfo) -> list[str]:
    """Words that set a decode apart from others of its search: its `name`, else its settings.

    Left out are settings that all decodes of the search share, those in its label, and those that dev chose.
    """
    if row.picked:
        return [words({name: value}) for name, value in changed(search, values, without=row.picked).items()]
    engine = "".join(f"-{row.settings[key]}" for key in ENGINE_SETTINGS if key in row.settings)
    if row.name != f"{search.name}{values.name_parts()}{engine}":
        return [row.name]
    return [words({name: value}) for name, value in changed(search, values).items()]


def changed(search: Search, values: SearchSettings, without: Collection[str] = ()) -> dict[str, Any]:
    """Settings with other values than their defaults, except those in the row's label and those in `without`."""
    label = search.row_label(values)

    def silent(name: str) -> bool:
        return label == search.row_label(values.model_copy(update={name: values.default(name)}))

    fields = [n for n in type(values).model_fields if not values.option(n).always and values.option(n).role is None]
    differing = {n: getattr(values, n) for n in fields if n not in without and getattr(values, n) != values.default(n)}
    return {name: value for name, value in differing.items() if silent(name)}


def _curve(system: SystemInfo, search: Search, values: SearchSettings, row: RowInfo, engine: EngineInfo) -> str:
    """Key that is equal for rows of one curve: all settings but the series; names of those that dev chose."""
    if search.series is None:
        return f"{system.name} {row.name}"
    free = {search.series, *(row.picked or {})}
    settings = {name: value for name, value in values.model_dump(mode="json").items() if name not in free}
    return f"{system.name} {search.name} {engine.key} {sorted(settings.items())} {sorted(row.picked or {})}"


def _shared(lists: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The words that all seeds of a row have."""
    return tuple(text for text in lists[0] if all(text in other for other in lists))


def common_label(labels: Sequence[str]) -> str:
    """One label for the seeds of a row: words in which theirs differ are left out."""
    split = [label.split(" ") for label in labels]
    if any(len(parts) != len(split[0]) for parts in split):
        return labels[0]
    return " ".join(parts[0] if len(set(parts)) == 1 else "…" for parts in zip(*split, strict=True))
