"""Who may import whom: every module imports its own rank or a lower one, and configuration never needs torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "workflow_src"
# From low to high; parts of one rank may import each other.
RANKS = [
    {"types", "config", "artifacts", "guard"},
    {"data"},
    {"models"},
    {"objectives", "inference"},
    {"registry"},
    {"training", "evaluation"},
    {"stages", "translate", "translate_ctranslate2", "translate_command", "estimate", "verify", "cli"},
]
RANK = {part: rank for rank, parts in enumerate(RANKS) for part in parts}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def imports(path: Path) -> list[str]:
    """Full names of what a module imports, at any depth of the file."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def part_of(name: str) -> str:
    return name.split(".")[1]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_modules_import_their_own_rank_or_lower(path):
    own = part_of(module_name(path))
    assert own in RANK, f"{own} has no rank yet: give it one"
    for name in imports(path):
        if name.startswith("workflow_src."):
            assert RANK[part_of(name)] <= RANK[own], f"{module_name(path)} imports {name}, which ranks higher"


@pytest.mark.parametrize("part", ["objectives", "inference"])
def test_objectives_and_inference_get_models_as_arguments(part):
    """No class of a model is imported, but for annotations (below `if TYPE_CHECKING`)."""
    for path in (PACKAGE / part).glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in [node for node in tree.body if isinstance(node, ast.ImportFrom)]:
            classes = [alias.name for alias in node.names if alias.name[0].isupper()]
            assert not (node.module.startswith("workflow_src.models") and classes), f"{path} imports {classes}"


@pytest.mark.parametrize("path", [p for p in MODULES if p.parent.name == "config" or p.stem in ("estimate", "cli")],
                         ids=module_name)  # fmt: skip
def test_configuration_names_no_torch(path):
    assert not [
        name for name in imports(path) if name.split(".")[0] == "torch" or name.startswith("workflow_src.types")
    ]


def test_stages_are_modules_of_rules_and_helpers():
    """Every stage that a rule runs is there, and no module of mathematics hides among them."""
    rules = "\n".join(path.read_text() for path in (PACKAGE.parent / "rules").glob("*.smk"))
    wanted = {word.split()[0] for word in rules.split(" workflow_src.stages.")[1:]}
    there = {path.stem for path in (PACKAGE / "stages").glob("*.py")}
    assert wanted and wanted <= there


def test_estimating_and_checking_import_no_torch():
    code = (
        "import sys; from workflow_src.cli import main; main(['estimate', 'wmt14']); main(['check', 'demo']);"
        "heavy = {'torch', 'numpy', 'sentencepiece', 'sacrebleu', 'matplotlib'} & set(sys.modules);"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
