"""Checks of declarations: roles, settings, names, and code that exists. No torch here.

Code is looked up in the text of its module, so that a declaration is checked where a plan is made.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import math
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from workflow_src.errors import DeclarationError, short_repr
from workflow_src.spec import (
    GOES_WITH,
    MODEL,
    SCORES,
    Analysis,
    AnalysisSettings,
    Convention,
    Engine,
    Family,
    Filter,
    Frozen,
    Metric,
    Program,
    Role,
    Search,
    SearchSettings,
    phrase,
)

# Settings that every model has: its width, and how long a sentence may be.
MODEL_FIELDS = ("dim", "max_positions")
# Settings of a decode beside those of its search (`config.experiment.DecodeConfig`).
DECODE_FIELDS = ("system", "search", "name", "tune", "tune_by", "engine", "compute_type", "batch", "shards", "splits")
# Names that are used beside the settings of a search, and where: settings cannot have them.
RESERVED = (
    (DECODE_FIELDS, "every decode has one"),
    (("chosen",), "rows of a measurement of speed have one"),
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
# Names become parts of files' and rules' names; an engine's is followed by "-" and its compute type.
NAME, ENGINE_NAME, ANALYSIS_NAME = r"[a-z0-9][a-z0-9._-]*", r"[a-z0-9][a-z0-9_]*", r"[a-z][a-z0-9_]*"
# Names of metrics are keys of files; with one of these endings they are keys of intervals and the like.
METRIC_NAME, METRIC_ENDINGS = r"[a-z][a-z0-9_+-]*", ("_ci", "_low", "_high", "_signature", "_p_value")
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


def check(families: Mapping[str, Family], searches: Mapping[str, Search], engines: Mapping[str, Engine]) -> None:
    """Check everything that is declared, by name. Raises DeclarationError for the first fault, in one sentence."""
    traits = frozenset().union(*(family.traits for family in families.values()))
    classes: dict[type, str] = {}
    for search in searches.values():
        where = f'search "{search.name}"'
        _check_name(where, search.name, NAME)
        _check_tuples(where, families=search.families)
        _check_settings(where, search, classes)
        if MODEL not in search.needs:
            raise DeclarationError(where, f'needs no role "{MODEL}", which the system itself fills', "add it")
        if search.traceable and search.series is None:
            raise DeclarationError(where, "is traceable and has no series to trace", "name one of its settings")
        _check_roles(where, search.needs, traits)
        _check_objects(where, run=search.run, step=search.step, program=search.program)
        _check_objects(where, at_lengths=search.at_lengths, origins=search.origins)
        _check_objects(where, **{f"program of {name}": role.program for name, role in search.needs.items()})
        for kind, declared, names in (
            ("search", searches, (search.baseline, search.control)),
            ("family", families, search.families),
        ):
            _check_names(where, kind, declared, filter(None, names))
    for family in families.values():
        where = f'family "{family.name}"'
        _check_name(where, family.name, NAME)
        _check_tuples(where, searches=family.searches, symbols=family.symbols, continues=family.continues or ())
        _check_roles(where, family.needs, traits)
        for name in family.needs:
            if not name.isidentifier() or name == MODEL:
                raise DeclarationError(where, f'has the role "{name}"', "use letters, digits and _")
        if len(set(family.symbols)) < len(family.symbols) or not all(map(str.isidentifier, family.symbols)):
            raise DeclarationError(
                where, f"has the symbols {family.symbols}", "name each once, by letters, digits and _"
            )
        _check_traits(where, family)
        _check_learning(where, family)
        _check_objects(
            where,
            build=family.build,
            loss=family.loss,
            validation=family.validation,
            fit=family.fit,
            start=family.start,
        )
        if not re.fullmatch(r"train_\w+", family.training_rule):
            raise DeclarationError(where, f'has the rule "{family.training_rule}"', "name it train_NAME")
        if not family.imported and not (family.presets and family.presets.is_file()):
            raise DeclarationError(where, f"has the file of presets {family.presets}", "write it")
        _check_names(where, "engine", engines, filter(None, [family.engine]))
        _check_names(where, "search", searches, family.searches)
        for name in family.searches:
            _check_fits(where, family, searches[name])
    for engine in engines.values():
        where = f'engine "{engine.name}"'
        _check_name(where, engine.name, ENGINE_NAME)
        _check_tuples(where, compute_types=engine.compute_types, devices=engine.devices, packages=engine.packages)
        _check_objects(where, open=engine.open, export=engine.export, distil=engine.distil)
        if bool(engine.exports) != bool(engine.export):
            raise DeclarationError(where, "has only one of exports and export", "declare both or none")
        if engine.exports and (not engine.exports.isidentifier() or engine.export_rule == "export_bundle"):
            raise DeclarationError(where, f'has the exports "{engine.exports}"', "use letters, digits and _")


def check_metrics(metrics: Mapping[str, Metric], project: Collection[str]) -> None:
    """Check metrics, by name, of which `project` has its own. Raises DeclarationError for the first fault."""
    labels: dict[tuple[str, str], str] = {("rule", path.stem): f"stage {path.stem}" for path in STAGES.glob("*.py")}
    for metric in metrics.values():
        where = f'metric "{metric.name}"'
        _check_name(where, metric.name, METRIC_NAME)
        if metric.name in METRIC_RESERVED or metric.name.endswith(METRIC_ENDINGS):
            raise DeclarationError(where, "has the name of another key of files", "rename it")
        _check_metric_fields(where, metric)
        for kind, label in _labels(metric):
            other = labels.setdefault((kind, label), where)
            if other != where:
                raise DeclarationError(where, f'has the {kind} "{label}", as {other} has', "change it")
        _check_tuples(where, packages=metric.packages)
        _check_objects(where, segments=metric.segments, score=metric.score)
        if metric.segments is None and metric.score is None:
            raise DeclarationError(where, "has neither segments nor score", "name a function")
        if metric.segments is None and (metric.uncertainty or metric.decides):
            raise DeclarationError(
                where,
                "has no segments, which tests need",
                "name their function, or set uncertainty and decides to False",
            )
        _check_class(where, metric.settings, Frozen)
        _check_defaults(where, metric.settings)
    _check_main(metrics, project)


def _check_main(metrics: Mapping[str, Metric], project: Collection[str]) -> None:
    """The main metric is one of the project's own, and tests compare rows by it."""
    main = min((metrics[name] for name in project), key=lambda metric: metric.order)
    if not main.uncertainty:
        raise DeclarationError(f'metric "{main.name}"', "is the main one without tests", "set its uncertainty to True")
    for metric in metrics.values():
        if metric is not main and metric.order <= main.order:
            raise DeclarationError(
                f'metric "{metric.name}"',
                f"has the order {metric.order}, before the main metric {main.name}",
                f"give it one above {main.order}",
            )


def _labels(metric: Metric) -> list[tuple[str, str]]:
    """Labels that must be unique to a metric: its title, the name of its convention, and its rule."""
    convention = [("convention", metric.convention.name)] if metric.convention else []
    return [("title", metric.title), *convention, *([("rule", metric.rule)] if metric.program else [])]


def _check_metric_fields(where: str, metric: Metric) -> None:
    fields = (
        ("title", _is_text(metric.title), "write one"),
        ("heading", metric.heading is None or _is_text(metric.heading), "write one, or None"),
        ("unit", metric.unit in ("", "%"), 'write "%", or ""'),
        ("better", metric.better in ("higher", "lower"), "write higher or lower"),
        ("references", metric.references in ("all", "first", "none"), "write all, first or none"),
        ("bounds", _are_bounds(metric.bounds), "make it a tuple (low, high) with low below high, None for no bound"),
        ("least", metric.least is None or _is_number(metric.least), "make it a number, or None"),
        ("order", _is_number(metric.order) and isinstance(metric.order, int), "make it a whole number"),
        ("conflict", callable(metric.conflict), "make it a function of corpus and settings"),
        ("convention", metric.convention is None or isinstance(metric.convention, Convention), "make it a Convention"),
        ("program", metric.program is None or _is_program(metric.program), "make it a Program whose file exists"),
    )
    for field, fits, fix in fields:
        if not fits:
            raise DeclarationError(where, f"has {field} {short_repr(getattr(metric, field))}", fix)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_program(value: Any) -> bool:
    return isinstance(value, Program) and value.file.is_file()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _are_bounds(bounds: Any) -> bool:
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        return False
    numbers = [bound for bound in bounds if bound is not None]
    return all(map(_is_number, numbers)) and (len(numbers) < 2 or numbers[0] < numbers[1])


def check_analyses(analyses: Mapping[str, Analysis]) -> None:
    """Check the analyses that are declared, by name. Raises DeclarationError as `check`."""
    rules = {path.stem: f"stage {path.stem}" for path in STAGES.glob("*.py")}
    for analysis in analyses.values():
        where = f'analysis "{analysis.name}"'
        _check_name(where, analysis.name, ANALYSIS_NAME)
        if not re.fullmatch(ANALYSIS_NAME, analysis.rule_name) or analysis.rule_name in rules:
            other = f", which is that of {rules[analysis.rule_name]}" if analysis.rule_name in rules else ""
            raise DeclarationError(
                where, f'has the rule "{analysis.rule_name}"{other}', "name it by small letters, digits and _"
            )
        rules[analysis.rule_name] = where
        _check_class(where, analysis.settings, AnalysisSettings)
        _check_defaults(where, analysis.settings)
        if analysis.split not in (None, "dev", "test"):
            raise DeclarationError(where, f'has the split "{analysis.split}"', "name dev, test, or None")
        _check_objects(where, measure=analysis.measure, show=analysis.show)


def check_filters(filters: Mapping[str, Filter]) -> None:
    """Check every filter by name. Raises DeclarationError for the first fault, in one sentence."""
    for filter in filters.values():
        where = f'filter "{filter.name}"'
        _check_name(where, filter.name, ENGINE_NAME)
        _check_tuples(where, needs=filter.needs)
        _check_class(where, filter.settings, Frozen)
        _check_defaults(where, filter.settings)
        for name in filter.needs:
            if name != SCORES:
                raise DeclarationError(where, f'needs "{name}"', f"{SCORES} is all that there is")
        _check_objects(where, check=filter.check)


def _check_class(where: str, settings: Any, base: type) -> None:
    if not (isinstance(settings, type) and issubclass(settings, base)):
        raise DeclarationError(where, f"has settings {short_repr(settings)}", f"derive a class from {base.__name__}")


def _check_defaults(where: str, settings: type[Frozen]) -> None:
    try:
        settings()
    except ValueError:
        raise DeclarationError(where, "has a setting without a default", "give every setting one") from None


def _check_name(where: str, name: str, pattern: str) -> None:
    if not re.fullmatch(pattern, name):
        raise DeclarationError(where, "has a name that cannot be part of a file's", f"match {pattern}")


def _check_tuples(where: str, **fields: Any) -> None:
    for name, value in fields.items():
        if not isinstance(value, (tuple, list)) or not all(isinstance(item, str) for item in value):
            raise DeclarationError(where, f"has {name} {short_repr(value)}", "make it a tuple of names")


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
    _check_class(where, search.settings, SearchSettings)
    if search.settings in classes:
        raise DeclarationError(
            where, f'has the settings class of search "{classes[search.settings]}"', "derive a class of its own"
        )
    classes[search.settings] = search.name
    _check_defaults(where, search.settings)
    for name in search.settings.model_fields:
        for names, why in RESERVED:
            if name in names:
                raise DeclarationError(where, f'has the setting "{name}", and {why}', "rename it")
        _check_part(where, name, search.settings)
    if search.series is not None and search.series not in search.settings.model_fields:
        raise DeclarationError(where, f'has the series "{search.series}"', "name one of its settings")
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


def _check_objects(where: str, **references: str | None) -> None:
    for kind, reference in references.items():
        if reference is not None:
            if problem := lookup_problem(reference):
                raise DeclarationError(where, f'has the {kind} "{reference}", which {problem}', "correct it")


@functools.cache
def lookup_problem(reference: str) -> str | None:
    """The reason why "module:object" cannot be found, without importing the module; None where it can."""
    module, colon, name = reference.partition(":")
    if not (module and colon and name):
        return "is not of the form module:object"
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        return f"cannot be found: there is no module {module}"
    if not spec.origin or not spec.origin.endswith(".py"):
        return None
    text = Path(spec.origin).read_text(encoding="utf-8")
    # The usual case, without parsing, which would slow every start down.
    if re.search(rf"^(?:class|def) {re.escape(name)}\b", text, re.MULTILINE):
        return None
    tree = ast.parse(text)
    return None if name in set(_names(tree.body)) else f"cannot be found: {module} defines no {name}"


def _names(body: list[ast.stmt]) -> Iterable[str]:
    """Names that a module's statements bind at its top level."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (item.id for target in targets for item in ast.walk(target) if isinstance(item, ast.Name))
        elif isinstance(node, (ast.If, ast.Try)):
            yield from _names([*node.body, *node.orelse])
