"""Checks of declarations beyond the types of their fields: names, roles and settings. No torch."""

from __future__ import annotations

import collections
import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from workflow_src.errors import ConfigError, DeclarationError, reason_of, short_repr
from workflow_src.spec import (
    DEFAULTS_NUMBERS,
    GOES_WITH,
    MODEL,
    Analysis,
    Engine,
    Family,
    Metric,
    Search,
    SearchSettings,
    phrase,
)
from workflow_src.spec.fields import Code
from workflow_src.spec.settings import PART_CHARACTERS

# Settings that every model has: its width, and how long a sentence may be.
MODEL_FIELDS = ("dim", "max_positions")
# The layers that `Family.positions` counts for (`config.costs`).
DECODER_LAYERS = "layers"
# Settings of a decode beside those of its search (`config.experiment.DecodeConfig`).
DECODE_FIELDS = ("system", "search", "name", "tune", "tune_by", "engine", "batch", "shards", "splits")
# Names that are used beside the settings of a search, and where: settings cannot have them.
RESERVED = (
    (DECODE_FIELDS, "every decode has one"),
    (("values",), "decodes of jobs have their settings under this name"),
    (("chosen", "compute_type"), "rows of a measurement of speed have one"),
    (
        (
            "help",
            "bundle",
            "plugins",
            "remove_repetitions",
            "device",
            "precision",
            "threads",
            "input",
            "output",
            "split",
            "n_best",
            "scores",
            "output_format",
            "interactive",
        ),
        "continuum translate has such an option",
    ),
    (
        (
            "self",
            "lines",
            "normalised",
            "first_line",
            "systems",
            "return_scores",
            "return_origins",
            "trace",
            "placeholders",
        ),
        "Translator.translate has such an argument",
    ),
)
# Names of metrics with one of these endings are keys of quality files, or columns of the leaderboard.
METRIC_ENDINGS = ("_ci", "_low", "_high", "_signature")
# Names of other figures of rows (`evaluation.report.results`, `tables` and `comparison`), and keys beside figures in
# files of quality and of what dev chose.
METRIC_RESERVED = frozenset(
    "mean_steps latency_ms latency_std sentences_per_second speedup from_control "
    "against_fastest as_published below_reference length_ratio settings".split()
)
# Entries of every file of an analysis, and what is made of them (`evaluation.content.Content`).
CONTENT_RESERVED = frozenset("analysis format provenance scope sentences split tables".split())
# What every row of such a file may say it is of (`evaluation.content.Row`).
ROW_RESERVED = frozenset("label model name search seed system".split())
# Stages, whose modules have the names of rules.
STAGES = Path(__file__).with_name("stages")
# Members by kind and name.
ByKind = Mapping[str, Mapping[str, Any]]
# What is wrong with a declaration, and what to do about it.
Faults = Iterator[tuple[str, str]]


def check(members: ByKind) -> None:
    """Check what is declared. Raises DeclarationError for the first fault, in one sentence."""
    traits = frozenset().union(*(family.traits for family in members["family"].values()))
    taken = {("rule", path.stem): f"stage {path.stem}" for path in STAGES.glob("*.py")}
    for kind, faults_of in FAULTS.items():
        for member in members[kind].values():
            where = f'{kind} "{member.name}"'
            owners = {label: taken.setdefault(label, where) for label in _labels(member)}
            shared = [
                ('has the {} "{}"'.format(*label) + f", as {other} has", "change it")
                for label, other in owners.items()
                if other != where
            ]
            # Checks rely on those before them, so that nothing is checked after the first fault.
            needs = getattr(member, "needs", ())
            for problem, fix in itertools.chain(faults_of(member, members), _roles(needs, traits), shared):
                raise DeclarationError(where, problem, fix)


def code_of(member: Any) -> dict[str, str]:
    """Objects that jobs import, as "module:object", by the fields that name them."""
    hints = get_type_hints(type(member), include_extras=True)
    fields = [name for name, hint in hints.items() if Code in (hint, *get_args(hint))]
    named = {name: value for name in fields if (value := getattr(member, name))}
    if isinstance(member, Search):
        named |= {f"program of {name}": role.program for name, role in member.needs.items() if role.program}
    return named


def check_sections(where: str, member: Any) -> None:
    """Check that a member's settings have defaults and no reserved key. Raises DeclarationError for the first fault."""
    settings = getattr(member, "settings", None)
    if settings is not None and any(field.is_required() for field in settings.model_fields.values()):
        raise DeclarationError(where, "has a setting without a default", "give every setting one")
    for section in filter(None, (getattr(member, kind, None) for kind in ("settings", "model", "objective"))):
        if DEFAULTS_NUMBERS in section.model_fields:
            problem = f'has the setting "{DEFAULTS_NUMBERS}", and settings of jobs have a key of this name'
            raise DeclarationError(where, problem, "rename it")


def _unknown(what: str, names: Iterable[str | None], known: Iterable[str]) -> Faults:
    for name in names:
        if name is not None and name not in known:
            yield (
                f'{what} "{name}", which is none of {", ".join(sorted(known)) or "any"}',
                "name another, or declare it",
            )


def _roles(needs: Any, traits: frozenset[str]) -> Faults:
    roles = needs.items() if isinstance(needs, Mapping) else ()
    for name, role in roles:
        yield from _unknown(f'has the role "{name}" of the trait', [role.trait], traits)


def _labels(member: Any) -> list[tuple[str, str]]:
    """What no two members share, by kind."""
    if isinstance(member, Analysis):
        columns = [figure.key for table in member.tables for figure in table.figures if figure.column]
        return [("rule", member.rule_name), *(("figure", key) for key in columns)]
    if isinstance(member, Engine):
        return [("exports", member.exports)] if member.exports else []
    if not isinstance(member, Metric):
        return []
    convention = [("convention", member.convention.name)] if member.convention else []
    return [
        ("title", member.title),
        ("figure", member.name),
        *convention,
        *([("rule", member.rule)] if member.program else []),
    ]


def _search(search: Search, members: ByKind) -> Faults:
    settings, searches = search.settings, members["search"]
    twin = next(other.name for other in searches.values() if other.settings is settings)
    if twin != search.name:
        yield f'has the settings class of search "{twin}"', "derive a class of its own"
    if MODEL not in search.needs:
        yield f'needs no role "{MODEL}", which the system itself fills', "add it"
    if search.series is None and (search.traceable or search.even_steps):
        yield "is traceable or has even steps, and has no series", "name one of its settings"
    yield from _unknown("has the series", [search.series], settings.model_fields)
    yield from _unknown("names the search", [search.baseline, search.control], searches)
    yield from _unknown("names the family", search.families, members["family"])
    for name in search.families:
        yield from _decoding(f'names the family "{name}"', members["family"][name], search)
    for name in settings.model_fields:
        yield from _setting(search, name)


def _setting(search: Search, name: str) -> Faults:
    settings, option = search.settings, search.settings.option(name)
    has = f'has the setting "{name}"'
    for names, why in RESERVED:
        if name in names:
            yield f"{has}, and {why}", "rename it"
    yield from _unknown(f"{has} for the role", [option.role], search.needs)
    yield from _unknown(f"{has} only with", [option.only_with], settings.model_fields)
    if option.only_with in settings.model_fields and settings.default(option.only_with):
        yield f"{has} only with {option.only_with}", "name a setting that is off by default"
    rows = []
    for value in (settings.default(name), *(option.tune or _others(settings, name))):
        with contextlib.suppress(ValueError):
            rows.append(settings.model_validate({name: value}))
    # Values under tune may need other values of other settings.
    tuned = [settings.model_construct(None, **{name: value}) for value in option.tune]
    for row in (*rows, *tuned) if option.part is not None else ():
        try:
            row.name_part(name)
        except ConfigError as error:
            problem = f"{has}, whose part of names does not fit {error.value!r}: {error.problem}"
            yield problem, f"write a format of one value, or a function, that gives {PART_CHARACTERS}"
    shown = set()
    # Labels of other settings may look up searches, and looking them up runs this check.
    for row in rows if option.always else ():
        try:
            shown.add(search.shown(row))
        except Exception as failure:
            # Functions of a plug-in may raise anything.
            yield (
                f"has no label where {name} is {getattr(row, name)!r}: {reason_of(failure)}",
                "correct label or details",
            )
    if option.always and len(shown) < len({getattr(row, name) for row in rows}):
        yield (
            f"{has} in every decode's name and in no label, so that two rows look alike",
            "show it in label or details",
        )


def _others(settings: type[SearchSettings], name: str) -> tuple[Any, ...]:
    """Further values of a setting; some may not be allowed."""
    default, annotation = settings.default(name), settings.model_fields[name].annotation
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if isinstance(default, bool):
        return (not default,)
    if isinstance(default, int | float):
        return (default + 1, default - 1, default / 2)
    return (1, 0.5, "other", ("other",), (1,), (2,))


def _family(family: Family, members: ByKind) -> Faults:
    if MODEL in family.needs:
        yield f'has the role "{MODEL}", which is its own', "rename it"
    if len(set(family.symbols)) < len(family.symbols):
        yield f"has the symbols {family.symbols}", "name each once"
    for trait, other in GOES_WITH.items():
        if trait in family.traits and other not in family.traits:
            problem = f'{phrase(trait)} and lacks the trait "{other}": its searches begin with a length'
            yield problem, f'add the trait "{other}" and a head of lengths'
    yield from _learning(family)
    yield from _unknown("names the engine", [family.engine], members["engine"])
    yield from _unknown("names the search", family.searches, members["search"])
    for name in family.searches:
        if name in members["search"]:
            yield from _decoding(f'names the search "{name}"', family, members["search"][name])


def _learning(family: Family) -> Faults:
    """A family is trained by updates, fitted at once, or made elsewhere."""
    if family.imported or family.engine:
        if not (family.imported and family.engine):
            yield "has only one of files and engine", "declare both or none"
        if family.build or family.loss or family.validation or family.fit or family.presets:
            yield "has files from elsewhere", "leave out its build, presets, loss, validation and fit"
        if family.weights is None:
            yield "has no weights", "name a function that counts those in its files"
        return
    if family.weights is not None:
        yield "declares weights, which are counted where it is built", "leave them out"
    if family.build is None:
        yield "has no build", "name one"
    if family.fit is not None:
        if family.loss or family.validation or family.searches:
            yield "is fitted at once", "leave out its loss, validation and searches"
        return
    for name in ("loss", "validation"):
        if getattr(family, name) is None:
            yield f"has no {name}", "name one, or a function that fits it at once"
    for field in MODEL_FIELDS:
        if field not in family.model.model_fields:
            yield f"has no model setting {field}", "add it"
    if family.positions and DECODER_LAYERS not in family.model.model_fields:
        yield f"has positions, and no model setting {DECODER_LAYERS}", "name the number of its decoder's layers so"
    if not family.searches:
        yield "names no search", "name at least one"


def _decoding(names: str, family: Family, search: Search) -> Faults:
    """Every role of the search is filled: by the family's networks, or by systems that settings name.

    `names` says who names whom.
    """
    filled = search.settings.roles().values()
    networks = [family.traits, *(frozenset({role.trait}) for role in family.needs.values())]
    for name, role in search.needs.items():
        if role.optional or name in filled or role.trait is None or any(role.trait in traits for traits in networks):
            continue
        problem = f'{names}, and the role "{name}" of the search needs the trait "{role.trait}"'
        yield problem, "name another, or add the trait"


def _engine(engine: Engine, _members: ByKind) -> Faults:
    if bool(engine.exports) != bool(engine.export):
        yield "has only one of exports and export", "declare both or none"
    if engine.export_rule == "export_bundle":
        yield f'has the exports "{engine.exports}", as bundles have', "rename them"


def _metric(metric: Metric, _members: ByKind) -> Faults:
    if metric.name in METRIC_RESERVED or metric.name.endswith(METRIC_ENDINGS):
        yield "has the name of another key of files", "rename it"
    low, high = metric.bounds
    if low is not None and high is not None and low >= high:
        yield f"has bounds {metric.bounds}", "write the lower one first"
    if metric.segments is None and metric.score is None:
        yield "has neither segments nor score", "name a function"
    if metric.segments is None and (metric.uncertainty or metric.decides):
        fix = "name their function, or set uncertainty and decides to False"
        yield "has no segments, which tests need", fix


def _analysis(analysis: Analysis, _members: ByKind) -> Faults:
    keys = [table.key for table in analysis.tables]
    for number, key in enumerate(keys):
        if key in CONTENT_RESERVED:
            yield f'has a table with the key "{key}", which every file has for something else', "change it"
        if key in keys[:number]:
            yield f'has two tables with the key "{key}"', "change one of them"
    for table in analysis.tables:
        for figure in table.figures:
            reserved = ROW_RESERVED | METRIC_RESERVED if figure.column else ROW_RESERVED
            for key in sorted(reserved.intersection([figure.key, figure.error])):
                yield f'has a figure with the key "{key}", which rows have for something else', "change it"
        for text in table.texts:
            yield from _text(text)


class _Entry:
    """Stands for an entry of a file, a number or words."""

    def __format__(self, written: str) -> str:
        for number in (0, 0.0):
            with contextlib.suppress(ValueError):
                return format(number, written)
        return format("", written)


def _text(text: str) -> Faults:
    try:
        text.format_map(collections.defaultdict(_Entry))
    except (AttributeError, TypeError, ValueError) as failure:
        problem = f"has the text {short_repr(text)}, which cannot be filled in: {reason_of(failure)}"
        yield problem, "write {name} for an entry of the file, and double other braces"


FAULTS: Mapping[str, Callable[[Any, ByKind], Faults]] = {
    "search": _search,
    "family": _family,
    "engine": _engine,
    "metric": _metric,
    "analysis": _analysis,
}
