"""No module names a member or imports its code (family, search, engine, metric, …): its folder and YAML alone do."""

from __future__ import annotations

import ast
import functools
import tokenize
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pytest

from workflow_src import registry
from workflow_src.config.roles import roles

PROJECT = Path(__file__).resolve().parents[1]
PACKAGE = PROJECT / "workflow_src"
OWN = ("families", "searches", "engines", "evaluation/metrics", "data/filters")
# Analyses that say in their own files how a search does.
CURVES = ("convergence/__init__", "convergence/measure", "energies/measure")
# Words that mean something else there: a figure of a translation, a key of records, a setting, a case.
MEANS = {
    "data/shards.py": {"score"},
    "serving/translations.py": {"score"},
    # German cases.
    **{f"data/toy/{name}.py": {"dat"} for name in ("lexicon", "phrases")},
    **{f"evaluation/analyses/{name}.py": {"bleu"} for name in CURVES},
    "stages/decode.py": {"score"},
    "stages/merge_distilled.py": {"score"},
}


def names() -> set[str]:
    # Our own engine has the project's name.
    members = {*registry.families(), *registry.searches(), *registry.engines(), *registry.metrics()}
    return members - {registry.default_engine().name}


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a module, at any depth."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def literals(path: Path) -> set[str]:
    """String literals of a module."""
    return {node.value for node in nodes(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


EVERY = sorted(PACKAGE.rglob("*.py"))
MODULES = [
    path for path in EVERY if not path.relative_to(PACKAGE).as_posix().startswith(tuple(f"{folder}/" for folder in OWN))
]


def offences(check: Callable[[Path], Collection[str]], paths: Iterable[Path]) -> dict[str, Collection[str]]:
    """What a check finds in modules, by module; modules without a finding are left out."""
    findings = {path.relative_to(PACKAGE).as_posix(): check(path) for path in paths}
    return {module: offending for module, offending in findings.items() if offending}


def test_no_literal_names_a_member():
    members = names()

    def members_named(path: Path) -> set[str]:
        return (literals(path) & members) - MEANS.get(path.relative_to(PACKAGE).as_posix(), set())

    assert len(MODULES) > 100
    assert not offences(members_named, MODULES)


RULES = [PROJECT / "Snakefile", *sorted((PROJECT / "rules").glob("*.smk"))]


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_no_rule_names_a_member(path):
    # Rules are no Python, but they have its strings.
    with tokenize.open(path) as file:
        strings = [token.string for token in tokenize.generate_tokens(file.readline) if token.type == tokenize.STRING]
    values = {ast.literal_eval(string) for string in strings if string[0] not in "fF"}
    assert values
    assert not values & (names() | analysis_names())


# Modules for all members.
SHARED = {"workflow_src.families.build", *(f"workflow_src.engines.{name}" for name in ("choose", "exports", "session"))}


def members_imported(path: Path) -> set[str]:
    imported = {alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes(path) if isinstance(node, ast.ImportFrom)}
    prefixes = tuple(f"workflow_src.{folder.replace('/', '.')}" for folder in OWN)
    return {name for name in imported if name.startswith(prefixes)} - SHARED


def test_no_import_of_a_members_code():
    assert not offences(members_imported, MODULES)


ANALYSES = PACKAGE / "evaluation/analyses"
# Names of analyses that are words of the field too: settings, keys of files, a head of models.
ALSO_WORDS = {"lengths", "samples", "tokens"}


def analysis_names() -> set[str]:
    """Names of analyses and of their rules."""
    return {name for analysis in registry.analyses().values() for name in (analysis.name, analysis.rule_name)}


def own_analysis(path: Path) -> str | None:
    """The analysis whose folder has the module."""
    inside = path.is_relative_to(ANALYSES) and path.parent != ANALYSES
    return path.relative_to(ANALYSES).parts[0] if inside else None


def analyses_of_others(path: Path) -> set[str]:
    """Analyses that a module outside their folders names as words or attributes, and their modules that it imports."""
    analysis_of_folder = own_analysis(path)
    analysis = registry.analyses().get(analysis_of_folder)
    excused = ALSO_WORDS | ({analysis.name, analysis.rule_name} if analysis else set())
    words = (literals(path) & analysis_names()) - excused
    modules = {node.module for node in nodes(path) if isinstance(node, ast.ImportFrom) and node.module}
    folders = {f"workflow_src.evaluation.analyses.{name}" for name in registry.analyses() if name != analysis_of_folder}
    imported = {module for module in modules for folder in folders if f"{module}.".startswith(f"{folder}.")}
    attributes = [node for node in nodes(path) if isinstance(node, ast.Attribute) and node.attr in registry.analyses()]
    return words | imported | {node.attr for node in attributes if ast.unparse(node.value).endswith("analyses")}


def test_only_its_own_folder_names_or_imports_an_analysis():
    assert not offences(analyses_of_others, EVERY)


def test_folders_of_analyses_have_their_names():
    folders = {path.parent.name for path in ANALYSES.glob("*/__init__.py")}
    assert folders == {
        name for name, analysis in registry.analyses().items() if analysis.measure.startswith("workflow_src.")
    }


def test_modules_of_filters_have_their_names():
    modules = {path.stem for path in (PACKAGE / "data/filters").glob("[!_]*.py")}
    assert modules == set(registry.filters())
    for name in modules:
        assert registry.filters()[name].check.__module__ == f"workflow_src.data.filters.{name}"


def test_what_is_excused_is_there():
    for place, words in MEANS.items():
        assert words <= literals(PACKAGE / place), place
    assert ALSO_WORDS <= analysis_names() & set().union(*map(literals, MODULES))


def test_roles_that_searches_name_systems_for_are_constants_of_one_module():
    modules = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in nodes(path)[0].body
        if isinstance(node, ast.Assign)
        and {constant.value for constant in ast.walk(node.value) if isinstance(constant, ast.Constant)} & set(roles())
    }
    assert modules == {"decoding/settings.py"}
