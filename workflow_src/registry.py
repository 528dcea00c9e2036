"""Members: the folders of `families/`, `searches/`, `evaluation/analyses/` and `evaluation/metrics/`, the modules of
`data/filters/`, engines, and plug-ins from outside. No torch here.

A plug-in is a package with a `PLUGIN` (`spec.Plugin`). It is used where a configuration lists it under `plugins`, or
where it is installed and has an entry point in the group "continuum". Jobs learn of those that a configuration lists
from the environment variable CONTINUUM_PLUGINS.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pydantic

from workflow_src.declarations import check, check_sections, code_of
from workflow_src.errors import DeclarationError, reason_of
from workflow_src.spec import (
    Analysis,
    Engine,
    Family,
    Figure,
    Filter,
    Generator,
    Metric,
    Plugin,
    Search,
    SearchSettings,
    config_error,
)

PACKAGE = Path(__file__).parent
# Environment variables with the modules of plug-ins that are used, and with the folders that they are in.
VARIABLE = "CONTINUUM_PLUGINS"
PLACES = "CONTINUUM_PLUGIN_PATH"
# Group of the entry points of installed plug-ins.
GROUP = "continuum"
# Kinds of members, and the fields of `Plugin` and of `Members` that have them.
KINDS = {
    "family": "families",
    "search": "searches",
    "engine": "engines",
    "metric": "metrics",
    "analysis": "analyses",
    "filter": "filters",
    "generator": "generators",
}
# Files with declarations by kind; a declaration is named after its kind, such as FAMILY.
FILES = {
    "family": "families/*/__init__.py",
    "search": "searches/*/__init__.py",
    "metric": "evaluation/metrics/*/__init__.py",
    "analysis": "evaluation/analyses/*/__init__.py",
    "generator": "data/*/__init__.py",
    "filter": "data/filters/[!_]*.py",
}


@dataclasses.dataclass(frozen=True)
class LoadedPlugin:
    """A plug-in with the module that declares it and the digest of the files of its package."""

    plugin: Plugin
    module: str
    digest: str

    def record(self) -> dict[str, str]:
        """The entry of the plug-in in bundles and provenance."""
        return {"name": self.plugin.name, "module": self.module, "version": self.plugin.version, "digest": self.digest}


def use(modules: Iterable[str]) -> None:
    """Use plug-ins by the names of their modules, and no others but installed ones, here and in processes started here.

    Raises DeclarationError for one that is missing or whose declarations cannot be used.
    """
    previous, new = used_modules(), tuple(dict.fromkeys(modules))
    if new != previous:
        _set_used_modules(new)
    try:
        members()
    except DeclarationError:
        _set_used_modules(previous)
        raise


def used_modules() -> tuple[str, ...]:
    """Names of the modules of plug-ins that are used beside installed ones."""
    return tuple(filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))


def _set_used_modules(modules: tuple[str, ...]) -> None:
    if modules:
        os.environ[VARIABLE] = os.pathsep.join(modules)
        # Jobs may work in another folder.
        os.environ[PLACES] = os.pathsep.join(_places())
    else:
        os.environ.pop(VARIABLE, None)
        os.environ.pop(PLACES, None)
    members.cache_clear()


def _places() -> list[str]:
    """Folders of plug-ins: those that are known, then the working directory, which may have changed since."""
    known = filter(None, os.environ.get(PLACES, "").split(os.pathsep))
    return list(dict.fromkeys([*known, os.getcwd(), os.environ.get("PWD", os.getcwd())]))


@dataclasses.dataclass(frozen=True)
class Members:
    families: Mapping[str, Family]
    searches: Mapping[str, Search]
    engines: Mapping[str, Engine]
    metrics: Mapping[str, Metric]
    analyses: Mapping[str, Analysis]
    filters: Mapping[str, Filter]
    generators: Mapping[str, Generator]
    plugins: tuple[LoadedPlugin, ...]
    owners: Mapping[tuple[str, str], LoadedPlugin]

    @functools.cached_property
    def search_by_settings(self) -> Mapping[type[SearchSettings], Search]:
        """The search of each class of settings."""
        return {search.settings: search for search in self.searches.values()}


@functools.cache
def members() -> Members:
    """All declared members by kind and name. Raises DeclarationError for the first declaration that cannot be used."""
    plugins = _plugins()
    own = [(kind, member) for kind, pattern in FILES.items() for member in _declared(kind, pattern)]
    own += [("engine", engine) for engine in importlib.import_module("workflow_src.engines").ENGINES]
    declared: list[tuple[str, Any, LoadedPlugin | None]] = [(kind, member, None) for kind, member in own]
    for loaded in plugins:
        for kind, field in KINDS.items():
            declared += [(kind, member, loaded) for member in getattr(loaded.plugin, field)]
    by_kind: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    owners: dict[tuple[str, str], LoadedPlugin] = {}
    for kind, member, owner in declared:
        where = f'{kind} "{member.name}"'
        if member.name in by_kind[kind]:
            other = owners.get((kind, member.name))
            raise DeclarationError(
                where, f"is declared by {_owner(other)} and by {_owner(owner)}", "rename one of them"
            )
        by_kind[kind][member.name] = member
        if owner:
            owners[kind, member.name] = owner
            check_sections(where, member)
    # The first of the project's own is the main one.
    main = next(iter(by_kind["metric"]))
    order = sorted(by_kind["metric"].values(), key=lambda metric: (metric.name != main, metric.order))
    by_kind["metric"] = {metric.name: metric for metric in order}
    check(by_kind)
    return Members(plugins=plugins, owners=owners, **{field: by_kind[kind] for kind, field in KINDS.items()})


def families() -> Mapping[str, Family]:
    return members().families


def searches() -> Mapping[str, Search]:
    return members().searches


def engines() -> Mapping[str, Engine]:
    return members().engines


def metrics() -> Mapping[str, Metric]:
    """Metrics by name, the main one first."""
    return members().metrics


def main_metric() -> Metric:
    """The metric that every experiment measures, and by which rows are chosen, compared and drawn."""
    return next(iter(metrics().values()))


def project_metrics() -> tuple[Metric, ...]:
    """Metrics of the project itself."""
    return tuple(metric for name, metric in metrics().items() if ("metric", name) not in members().owners)


def default_metrics() -> tuple[Metric, ...]:
    """Metrics of an experiment that lists none."""
    return tuple(metric for metric in project_metrics() if metric.default)


def conventions() -> dict[str, Metric]:
    """Metrics that count the main figure by a convention, by the name of the convention."""
    return {metric.convention.name: metric for metric in metrics().values() if metric.convention}


def analyses() -> Mapping[str, Analysis]:
    """Analyses by name, in the order of the report; those of plug-ins come last."""
    return members().analyses


def figures_of_rows() -> Mapping[str, Figure]:
    """Figures of rows that analyses put into the main table, by their keys."""
    tables = (table for analysis in analyses().values() for table in analysis.tables)
    return {figure.key: figure for table in tables for figure in table.figures if figure.column}


def filters() -> Mapping[str, Filter]:
    return members().filters


def generators() -> Mapping[str, Generator]:
    """Generators of corpora by name, the embedded one first."""
    return members().generators


def plugins() -> tuple[LoadedPlugin, ...]:
    return members().plugins


def searches_of(family: Family) -> tuple[str, ...]:
    """The family's `searches`, default first, then searches whose `families` list it."""
    listing = (search.name for search in searches().values() if family.name in search.families)
    return tuple(dict.fromkeys([*family.searches, *listing]))


def default_engine() -> Engine:
    """The engine that computes a decode which names none: the first that is declared."""
    return next(iter(engines().values()))


def search_of(settings: SearchSettings) -> Search:
    """The search that a settings object belongs to."""
    return members().search_by_settings[type(settings)]


def distilling_search() -> Search:
    """The search that teachers translate the training source with: the reference of comparisons."""
    return next(search for search in searches().values() if search.reference)


def distilling_engines() -> tuple[Engine, ...]:
    """Engines that distil text beside our own; the first is the one that is taken where none is named."""
    return tuple(engine for engine in engines().values() if engine.distil)


def import_object(reference: str) -> Any:
    """The object that "module:object" names. Raises DeclarationError where it cannot be imported."""
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as failure:
        # A module of a plug-in is the user's code, which may raise anything.
        raise DeclarationError(f'"{reference}"', f"cannot be imported: {reason_of(failure)}", "correct it") from failure


def import_plugins() -> None:
    """Import all objects that the declarations of plug-ins name, such as models and searches, which need PyTorch.

    Raises DeclarationError for the first that cannot be imported or called, and for a search whose module is no
    `SearchModule`, or is not made for the `refines`, `positions` or `blocks` that the search says. Loading a plug-in
    imports its declarations alone, so that planning stays quick; jobs import the objects that they use. Without PyTorch
    here, jobs have an environment of their own, such as Conda's, and nothing is imported.
    """
    if importlib.util.find_spec("torch") is None:
        return
    used = members()
    for kind, name in used.owners:
        for field, reference in code_of(getattr(used, KINDS[kind])[name]).items():
            try:
                if not callable(import_object(reference)):
                    raise DeclarationError(f'"{reference}"', "is no function or class", "name one")
            except DeclarationError as error:
                problem = f"has the {field} {error.subject}, which {error.problem}"
                raise DeclarationError(f'{kind} "{name}"', problem, error.fix) from error
        if kind == "search":
            _check_module(used.searches[name])


def _check_module(search: Search) -> None:
    where = f'search "{search.name}"'
    module, base = import_object(search.module), import_object("workflow_src.decoding.search:SearchModule")
    if not (isinstance(module, type) and issubclass(module, base)):
        problem = f'has the module "{search.module}", which is no class of SearchModule'
        raise DeclarationError(where, problem, "derive one from workflow_src.decoding.search.SearchModule")
    for trait in ("refines", "positions", "blocks"):
        if getattr(search, trait) and not getattr(module, trait, False):
            problem = f'has {trait}=True, which its module "{search.module}" is not made for'
            raise DeclarationError(where, problem, f"inherit from the class that `{trait}` names")


def _owner(loaded: LoadedPlugin | None) -> str:
    return f"plug-in {loaded.plugin.name}" if loaded else "Continuum itself"


def _declared(kind: str, pattern: str) -> list[Any]:
    """Declarations in the modules that have one, or several under the plural of its name; helpers beside them have
    none."""
    names = sorted(
        path.relative_to(PACKAGE).with_suffix("").as_posix().removesuffix("/__init__").replace("/", ".")
        for path in PACKAGE.glob(pattern)
    )
    modules = (importlib.import_module(f"workflow_src.{name}") for name in names)
    declared = []
    for module in modules:
        declared += [getattr(module, kind.upper())] if hasattr(module, kind.upper()) else []
        declared += getattr(module, KINDS[kind].upper(), ())
    return sorted(declared, key=lambda member: getattr(member, "order", 0))


def _plugins() -> tuple[LoadedPlugin, ...]:
    points = {point.module: point for point in importlib.metadata.entry_points(group=GROUP)}
    by_name: dict[str, LoadedPlugin] = {}
    for module in dict.fromkeys([*points, *used_modules()]):
        loaded = _plugin(module)
        other = by_name.setdefault(loaded.plugin.name, loaded)
        if other is not loaded:
            problem = f'has the name "{loaded.plugin.name}", as plug-in "{other.module}" has'
            raise DeclarationError(f'plug-in "{module}"', problem, "rename one of them")
    return tuple(by_name.values())


def _plugin(name: str) -> LoadedPlugin:
    # Jobs are started with PYTHONSAFEPATH, so that no module of the working directory hides another: it comes last.
    sys.path += [place for place in _places() if place not in sys.path]
    importlib.invalidate_caches()
    where = f'plug-in "{name}"'
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as failure:
        if failure.name and (name == failure.name or name.startswith(failure.name + ".")):
            raise DeclarationError(
                where,
                f"is neither installed nor a package in {os.getcwd()}",
                "install it, or start from the folder that has it",
            ) from None
        raise DeclarationError(where, f"cannot be imported: {failure}") from failure
    except Exception as failure:
        wrong: Exception = failure
        if isinstance(failure, pydantic.ValidationError):
            wrong = config_error(failure, None, failure.title, failure.title)
        raise DeclarationError(where, f"cannot be imported: {reason_of(wrong)}") from failure
    plugin = getattr(module, "PLUGIN", None)
    if not isinstance(plugin, Plugin):
        file, hidden = getattr(module, "__file__", None), _hidden(name)
        problem = "has no PLUGIN of type workflow_src.spec.Plugin" + (f" in {file}" if file else "")
        fix = f"rename {hidden}, which another module of its name hides" if hidden else "add it"
        raise DeclarationError(where, problem, fix)
    assert module.__file__, "a module with an object has a file"
    return LoadedPlugin(plugin, name, digest(Path(module.__file__)))


def _hidden(name: str) -> Path | None:
    """A package in the places of plug-ins, where another module of its name was imported."""
    package = name.partition(".")[0]
    imported = getattr(sys.modules[package], "__file__", None)
    spec = importlib.machinery.PathFinder.find_spec(package, _places())
    if spec is None or spec.origin is None or (imported and Path(imported).resolve() == Path(spec.origin).resolve()):
        return None
    path = Path(spec.origin)
    return path.parent if path.name == "__init__.py" else path


def files_of(package: Path, pattern: str = "*") -> list[Path]:
    """Files of a package, in order; without compiled code, and what editors and tools hide beside it."""
    files = []
    for path in sorted(package.rglob(pattern)):
        left_out = any(part[0] == "." or part == "__pycache__" for part in path.relative_to(package).parts)
        if not left_out and path.is_file():
            files.append(path)
    return files


def digest(init: Path) -> str:
    """SHA-256 of the files of a package by name and content, or of a single module."""
    root = init.parent if init.name == "__init__.py" else None
    files = files_of(root) if root else [init]
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.relative_to(root) if root else path.name}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
