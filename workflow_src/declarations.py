"""Checks of declarations beyond the types of their fields: names, roles, settings, and code that exists. No torch."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import symtable
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workflow_src.errors import DeclarationError
from workflow_src.spec import (
    GOES_WITH,
    MODEL,
    Analysis,
    Engine,
    Family,
    Metric,
    Role,
    Search,
    SearchSettings,
    phrase,
)

# Settings that every model has: its width, and how long a sentence may be.
MODEL_FIELDS = ("dim", "max_positions")
# Settings of a decode beside those of its search (`config.experiment.DecodeConfig`).
DECODE_FIELDS = ("system", "search", "name", "tune", "tune_by", "engine", "batch", "shards", "splits")
# Names that are used beside the settings of a search, and where: settings cannot have them.
RESERVED = (
    (DECODE_FIELDS, "every decode has one"),
    (("chosen", "compute_type"), "rows of a measurement of speed have one"),
    (
        (
            *("help", "bundle", "plugins", "remove_repetitions", "device", "precision", "threads", "input", "output"),
            *("split", "n_best", "scores", "output_format"),
        ),
        "continuum translate has such an option",
    ),
    (
        ("self", "lines", "normalised", "first_line", "systems", "return_scores", "return_origins"),
        "Translator.translate has such an argument",
    ),
)
# Names of metrics with one of these endings are keys of intervals and the like.
METRIC_ENDINGS = ("_ci", "_low", "_high", "_signature", "_p_value")
# Further keys beside figures: of rows of results (`evaluation.report.results.Row`), of quality, of what dev chose, and
# of lines of tables (`evaluation.report.tables.Line`).
METRIC_RESERVED = frozenset(
    "system family autoregressive aligned preset data seed name chosen search title settings series value engine "
    "mean_steps candidates repetitions_removed p_value control_difference control_p_value energy_per_sentence "
    "energy_per_token latency_ms latency_std latency_rounds disturbed_rounds sentences_per_second speedup device "
    "threads batch length_ratio against_fastest as_published".split()
)
# Stages, whose modules have the names of rules.
STAGES = Path(__file__).with_name("stages")
# Fields of members that name an object that jobs import.
CODE = frozenset(
    "build loss validation fit start run step program at_lengths origins open export distil segments score measure "
    "show check".split()
)


def check(families: Mapping[str, Family], searches: Mapping[str, Search], engines: Mapping[str, Engine]) -> None:
    """Check what is declared, by name. Raises DeclarationError for the first fault, in one sentence."""
    traits = frozenset().union(*(family.traits for family in families.values()))
    classes: dict[type, str] = {}
    for search in searches.values():
        where = f'search "{search.name}"'
        _check_settings(where, search, classes)
        if MODEL not in search.needs:
            raise DeclarationError(where, f'needs no role "{MODEL}", which the system itself fills', "add it")
        if search.traceable and search.series is None:
            raise DeclarationError(where, "is traceable and has no series to trace", "name one of its settings")
        _check_roles(where, search.needs, traits)
        _check_names(where, "search", searches, filter(None, (search.baseline, search.control)))
        _check_names(where, "family", families, search.families)
    for family in families.values():
        where = f'family "{family.name}"'
        _check_roles(where, family.needs, traits)
        for name in family.needs:
            if not name.isidentifier() or name == MODEL:
                raise DeclarationError(where, f'has the role "{name}"', "use letters, digits and _")
        if len(set(family.symbols)) < len(family.symbols):
            raise DeclarationError(where, f"has the symbols {family.symbols}", "name each once")
        _check_traits(where, family)
        _check_learning(where, family)
        if not re.fullmatch(r"train_\w+", family.training_rule):
            raise DeclarationError(where, f'has the rule "{family.training_rule}"', "name it train_NAME")
        _check_names(where, "engine", engines, filter(None, [family.engine]))
        _check_names(where, "search", searches, family.searches)
        for name in family.searches:
            _check_fits(where, family, searches[name])
    for engine in engines.values():
        where = f'engine "{engine.name}"'
        if bool(engine.exports) != bool(engine.export):
            raise DeclarationError(where, "has only one of exports and export", "declare both or none")
        if engine.export_rule == "export_bundle":
            raise DeclarationError(where, f'has the exports "{engine.exports}", as bundles have', "rename them")


def check_metrics(metrics: Iterable[Metric], main: Metric) -> None:
    """Check metrics, of which `main` decides. Raises DeclarationError for the first fault."""
    labels = {("rule", path.stem): f"stage {path.stem}" for path in STAGES.glob("*.py")}
    if not main.uncertainty:
        raise DeclarationError(f'metric "{main.name}"', "is the main one without tests", "set its uncertainty to True")
    for metric in metrics:
        where = f'metric "{metric.name}"'
        if metric.name in METRIC_RESERVED or metric.name.endswith(METRIC_ENDINGS):
            raise DeclarationError(where, "has the name of another key of files", "rename it")
        low, high = metric.bounds
        if low is not None and high is not None and low >= high:
            raise DeclarationError(where, f"has bounds {metric.bounds}", "write the lower one first")
        convention = [("convention", metric.convention.name)] if metric.convention else []
        rule = [("rule", metric.rule)] if metric.program else []
        for label in [("title", metric.title), *convention, *rule]:
            other = labels.setdefault(label, where)
            if other != where:
                raise DeclarationError(where, 'has the {} "{}"'.format(*label) + f", as {other} has", "change it")
        if metric.segments is None and metric.score is None:
            raise DeclarationError(where, "has neither segments nor score", "name a function")
        if metric.segments is None and (metric.uncertainty or metric.decides):
            fix = "name their function, or set uncertainty and decides to False"
            raise DeclarationError(where, "has no segments, which tests need", fix)
        if metric is not main and metric.order <= main.order:
            problem = f"has the order {metric.order}, before the main metric {main.name}"
            raise DeclarationError(where, problem, f"give it one above {main.order}")


def check_analyses(analyses: Iterable[Analysis]) -> None:
    """Check analyses. Raises DeclarationError for the first fault."""
    rules = {path.stem: f"stage {path.stem}" for path in STAGES.glob("*.py")}
    for analysis in analyses:
        where = f'analysis "{analysis.name}"'
        other = rules.setdefault(analysis.rule_name, where)
        if other != where:
            raise DeclarationError(where, f'has the rule "{analysis.rule_name}", which is that of {other}', "rename it")


def check_member(where: str, member: Any) -> None:
    """Check a member by itself: its settings have defaults, and there are modules with the objects that jobs import.

    Looks into modules without importing them. Raises DeclarationError for the first fault.
    """
    settings = getattr(member, "settings", None)
    if settings is not None and any(field.is_required() for field in settings.model_fields.values()):
        raise DeclarationError(where, "has a setting without a default", "give every setting one")
    references = {name: value for name, value in vars(member).items() if name in CODE and isinstance(value, str)}
    if isinstance(member, Search):
        references |= {f"program of {name}": role.program for name, role in member.needs.items() if role.program}
    for field, reference in references.items():
        module, _, name = reference.partition(":")
        try:
            spec = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            spec = None
        missing = f"there is no module {module}" if spec is None else ""
        if spec and spec.origin and spec.origin.endswith(".py"):
            missing = _missing_object(module, name, Path(spec.origin))
        if missing:
            raise DeclarationError(where, f'has the {field} "{reference}", and {missing}', "correct it")


def _missing_object(module: str, name: str, path: Path) -> str:
    """Why a module's file defines or imports no object `name` outside its functions and classes; empty if it does."""
    try:
        top = symtable.symtable(path.read_text(encoding="utf-8"), str(path), "exec")
    except SyntaxError as failure:
        return f"line {failure.lineno} of {module} is no Python"
    symbols = {symbol.get_name(): symbol for symbol in top.get_symbols()}
    if name in symbols and (symbols[name].is_assigned() or symbols[name].is_imported()):
        return ""
    return f"{module} has no {name}"


def _check_traits(where: str, family: Family) -> None:
    for trait, other in GOES_WITH.items():
        if trait in family.traits and other not in family.traits:
            raise DeclarationError(
                where,
                f'{phrase(trait)} and lacks the trait "{other}": its searches begin with a length',
                f'add the trait "{other}" and a head of lengths',
            )


def _check_learning(where: str, family: Family) -> None:
    """A family is trained by updates, fitted at once, or made elsewhere."""
    if family.imported or family.engine:
        if not (family.imported and family.engine):
            raise DeclarationError(where, "has only one of files and engine", "declare both or none")
        if family.build or family.loss or family.validation or family.fit or family.presets:
            problem = "has files from elsewhere"
            raise DeclarationError(where, problem, "leave out its build, presets, loss, validation and fit")
        return
    if family.build is None:
        raise DeclarationError(where, "has no build", "name one")
    if family.fit is not None:
        if family.loss or family.validation or family.searches:
            raise DeclarationError(where, "is fitted at once", "leave out its loss, validation and searches")
        return
    for name in ("loss", "validation"):
        if getattr(family, name) is None:
            raise DeclarationError(where, f"has no {name}", "name one, or a function that fits it at once")
    for field in MODEL_FIELDS:
        if field not in family.model.model_fields:
            raise DeclarationError(where, f"has no model setting {field}", "add it")
    for field in family.continues or ():
        if field not in family.model.model_fields:
            raise DeclarationError(where, f"continues {field}, which is no model setting", "name one")
    if not family.searches:
        raise DeclarationError(where, "names no search", "name at least one")


def _check_settings(where: str, search: Search, classes: dict[type, str]) -> None:
    if search.settings in classes:
        raise DeclarationError(
            where, f'has the settings class of search "{classes[search.settings]}"', "derive a class of its own"
        )
    classes[search.settings] = search.name
    for name in search.settings.model_fields:
        for names, why in RESERVED:
            if name in names:
                raise DeclarationError(where, f'has the setting "{name}", and {why}', "rename it")
        _check_part(where, name, search.settings)
    if search.series is not None and search.series not in search.settings.model_fields:
        raise DeclarationError(where, f'has the series "{search.series}"', "name one of its settings")
    for name in search.settings.named("tune"):
        usual: Any = search.settings.option(name).tune
        if not isinstance(usual, tuple):
            problem = f'has the setting "{name}" with tune {usual!r}'
            raise DeclarationError(where, problem, "make it a tuple of the values that dev usually chooses from")
    for name in search.settings.named("role"):
        if search.settings.option(name).role not in search.needs:
            raise DeclarationError(where, f'has the setting "{name}", which fills no role of it', "add the role")
    for name in search.settings.named("only_with"):
        other = search.settings.option(name).only_with
        if other not in search.settings.model_fields or search.settings.default(other):
            raise DeclarationError(
                where, f'has the setting "{name}" only with {other}', "name a setting that is off by default"
            )


def _check_part(where: str, name: str, settings: type[SearchSettings]) -> None:
    """Raises DeclarationError for a format that fits no kind of value."""
    part = settings.option(name).part
    if part is None or callable(part):
        return
    for value in (settings.default(name), 1, 1.0, "a"):
        with contextlib.suppress(ValueError, TypeError, LookupError):
            part.format(value)
            return
    raise DeclarationError(where, f'has the setting "{name}" with the part "{part}"', "write a format of one value")


def _check_roles(where: str, needs: Mapping[str, Role], traits: frozenset[str]) -> None:
    for name, role in needs.items():
        if role.trait is not None and role.trait not in traits:
            raise DeclarationError(
                where,
                f'has the role "{name}" of trait "{role.trait}", which no family has',
                f"name one of {', '.join(sorted(traits))}",
            )


def _check_names(where: str, kind: str, declared: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if name not in declared:
            raise DeclarationError(where, f'names the {kind} "{name}", which is not declared', "declare it")


def _check_fits(where: str, family: Family, search: Search) -> None:
    """Every role of the search is filled: by the family's networks, or by systems that settings name."""
    filled = {search.settings.option(name).role for name in search.settings.named("role")}
    networks = [family.traits, *(frozenset({role.trait}) for role in family.needs.values())]
    for name, role in search.needs.items():
        if role.optional or name in filled or role.trait is None or any(role.trait in traits for traits in networks):
            continue
        raise DeclarationError(
            where,
            f'names the search "{search.name}", whose role "{name}" needs the trait "{role.trait}"',
            "name another, or add the trait",
        )
