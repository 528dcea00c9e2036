"""What inference asks of a model is what the model's interface says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from workflow_src import types

PACKAGE = Path(types.__file__).parent
INTERFACES = {name: kind for name, kind in vars(types).items() if getattr(kind, "_is_protocol", False)}


def members(interface: type) -> set[str]:
    return {name for base in interface.__mro__ for name in (*vars(base), *vars(base).get("__annotations__", {}))}


def interfaces(annotation: ast.expr | None) -> list[type]:
    """Those that a parameter is said to have; none where it may be anything else."""
    if isinstance(annotation, ast.BinOp):
        left, right = interfaces(annotation.left), interfaces(annotation.right)
        return [*left, *right] if left and right else []
    known = INTERFACES.get(annotation.id) if isinstance(annotation, ast.Name) else None
    return [known] if known else []


def asked(path: Path) -> list[tuple[str, str]]:
    """Interface and attribute of everything that a module asks of a parameter whose interface it names."""
    found = []
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(function, ast.FunctionDef):
            continue
        for argument in (*function.args.args, *function.args.kwonlyargs):
            kinds = interfaces(argument.annotation)
            for node in ast.walk(function) if kinds else ():
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    if node.value.id == argument.arg and not any(node.attr in members(kind) for kind in kinds):
                        found.append((ast.unparse(argument.annotation), node.attr))
    return found


@pytest.mark.parametrize("room", ["decoding", "searches", "evaluation", "engines", "training"])
def test_nothing_is_asked_of_a_model_that_its_interface_does_not_name(room):
    paths = sorted((PACKAGE / room).rglob("*.py"))
    assert paths and {path.name: asked(path) for path in paths if asked(path)} == {}


def test_what_is_missing_is_seen(tmp_path):
    (tmp_path / "wrong.py").write_text(
        "def length(model: LatentModel | Refiner, other: Any): return model.none + other.x"
    )
    assert asked(tmp_path / "wrong.py") == [("LatentModel | Refiner", "none")]
