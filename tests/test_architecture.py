"""Imports go one way: modules import their own rank or a lower one, none in a circle, and planning needs no torch."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import torch

PACKAGE = Path(__file__).resolve().parents[1] / "workflow_src"
# From low to high.
RANKS = [
    {"errors"},
    {"types", "spec"},
    {"declarations"},
    {"registry"},
    {"config"},
    {"records", "runtime", "data"},
    {"jobs"},
    {"nn"},
    {"losses", "decoding"},
    {"families", "searches"},
    {"engines"},
    {"training", "evaluation", "serving"},
    {"stages", "cli"},
]
RANK = {part: rank for rank, parts in enumerate(RANKS) for part in parts}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
# Modules directly in the package; everything else has a room.
MOST_AT_THE_TOP = 6


@functools.cache
def imports(path: Path) -> list[str]:
    """Full names of what a module imports, at any depth of the file: in functions and below TYPE_CHECKING too."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def part_of(name: str) -> str:
    return name.split(".")[1]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULE_NAMES = frozenset(map(module_name, MODULES))


def imported_modules(path: Path) -> set[str]:
    """Modules of the package that a module imports: a package where it takes a name from its `__init__`."""
    names = {name for name in imports(path) if name.startswith("workflow_src.")}
    return {name if name in MODULE_NAMES else name.rpartition(".")[0] for name in names} - {"workflow_src"}


def test_modules_import_their_own_rank_or_lower():
    for path in MODULES:
        importing_part = part_of(module_name(path))
        assert importing_part in RANK, f"{importing_part} has no rank yet: give it one"
        for name in imports(path):
            assert name != "workflow_src.Translator", f"{module_name(path)}: import it from its module"
            if name.startswith("workflow_src."):
                assert RANK[part_of(name)] <= RANK[importing_part], (
                    f"{module_name(path)} imports {name}, which ranks higher"
                )


# Rooms of evaluation that do not import each other; what several need ranks below them.
APART = ("evaluation.analyses", "evaluation.metrics", "evaluation.report")


def test_analyses_metrics_and_the_report_do_not_import_each_other():
    checked = 0
    for path in MODULES:
        name = module_name(path).removeprefix("workflow_src.")
        own = next((room for room in APART if f"{name}.".startswith(f"{room}.")), None)
        others = tuple(f"workflow_src.{room}" for room in APART if room != own) if own else ()
        imported = {module for module in imported_modules(path) if module.startswith(others)} if own else set()
        assert not imported, f"{name} imports {', '.join(sorted(imported))}"
        checked += own is not None
    assert checked > 50


def test_no_modules_import_each_other_in_a_circle():
    graph = {module_name(path): imported_modules(path) for path in MODULES}
    assert len(graph) > 100 and graph["workflow_src.nn.layers"]
    # Raises CycleError, which names the circle.
    graphlib.TopologicalSorter(graph).prepare()


def test_no_rooms_import_each_other_in_a_circle():
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        importing_part = part_of(module_name(path))
        graph.setdefault(importing_part, set()).update(
            {part_of(name) for name in imported_modules(path)} - {importing_part}
        )
    graphlib.TopologicalSorter(graph).prepare()


def test_the_top_of_the_package_has_few_modules():
    top = sorted(path.name for path in PACKAGE.glob("*.py"))
    assert len(top) <= MOST_AT_THE_TOP, f"{top}: give one of them a room"


MATHEMATICS = [
    path
    for path in MODULES
    if part_of(module_name(path)) in ("losses", "decoding", "searches") or path.stem in ("objective", "validation")
]


def test_losses_and_searches_get_models_as_arguments():
    """Of models they name the bases in `nn`; no family's is imported, but for annotations (below `if TYPE_CHECKING`),
    and no network is built."""
    for path in MATHEMATICS:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        networks = set()
        for node in [node for node in tree.body if isinstance(node, ast.ImportFrom)]:
            classes = [alias.name for alias in node.names if alias.name[0].isupper()]
            assert not (node.module.endswith(".model") and classes), f"{path} imports {classes}"
            if node.module.startswith("workflow_src.nn"):
                imported = {name: getattr(importlib.import_module(node.module), name) for name in classes}
                networks |= {n for n, x in imported.items() if isinstance(x, type) and issubclass(x, torch.nn.Module)}
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        built = networks & {called.id for called in calls if isinstance(called, ast.Name)}
        assert not built, f"{path} builds {built}"


# Modules that a dry run imports, and those of commands of `continuum` that need no model.
PLANNING = [
    path
    for path in MODULES
    if part_of(module_name(path)) in ("errors", "spec", "declarations", "registry", "config", "cli")
    or module_name(path).removeprefix("workflow_src.") in ("records.atomic", "runtime.guard")
]


def test_planning_names_no_torch():
    for path in PLANNING:
        heavy = [x for x in imports(path) if x.split(".")[0] == "torch" or x.startswith("workflow_src.types")]
        assert not heavy, f"{module_name(path)} imports {heavy}"


def test_stages_are_the_modules_that_rules_run():
    paths = [*(PACKAGE.parent / "rules").glob("*.smk"), PACKAGE / "runtime/rule_params.py"]
    in_rules = {name for path in paths for name in re.findall(r"\bstage\(\s*\"(\w+)\"", path.read_text())}
    assert in_rules == {path.stem for path in (PACKAGE / "stages").glob("*.py")} - {"__init__"}


def test_no_stage_imports_another():
    for path in sorted((PACKAGE / "stages").glob("*.py")):
        stages = [name for name in imports(path) if name.startswith("workflow_src.stages")]
        assert not stages, f"{module_name(path)} imports {stages}"


def test_checking_imports_no_torch_and_estimating_what_was_counted_neither(tmp_path):
    heavy = "heavy = {'torch', 'sentencepiece', 'sacrebleu', 'altair'} & set(sys.modules);"
    start = "import sys; from workflow_src.cli import main;"
    checked = f"{start} main(['check', 'demo']); {heavy} assert not heavy | {{'numpy', 'snakemake'}} & set(sys.modules)"
    small = ["estimate", "--no-calibration", "--config", "experiment=small", "extends=smoke", "only=[teacher]"]
    estimated = f"{start} main({small}); {heavy}"
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    for code in (checked, f"{estimated} assert heavy == {{'torch'}}, heavy", f"{estimated} assert not heavy, heavy"):
        command = [sys.executable, "-c", code]
        process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert process.returncode == 0, process.stderr


def test_the_help_of_the_translation_command_imports_no_torch():
    code = (
        "import atexit, os, sys; atexit.register(lambda: 'torch' in sys.modules and os._exit(9));"
        "from workflow_src.cli import main; main(['translate', '--help'])"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert process.returncode == 0 and "--bundle" in process.stdout, process.stderr


def test_stages_import_no_torch_before_they_compute():
    """It takes two seconds: of jobs of texts and figures, which are many and short, and of every `--help`."""
    stages = sorted(path.stem for path in (PACKAGE / "stages").glob("[a-z]*.py"))
    assert len(stages) > 20
    names = [f"workflow_src.stages.{stage}" for stage in stages]
    code = (
        f"import sys, importlib; [importlib.import_module(name) for name in {names}]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent).returncode == 0


def test_the_package_offers_the_translator_and_imports_it_when_asked():
    code = (
        "import sys, workflow_src; assert 'torch' not in sys.modules and not hasattr(workflow_src, 'Translater');"
        "from workflow_src import Translator; from workflow_src.serving import translator;"
        "assert Translator is translator.Translator and 'torch' in sys.modules"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
