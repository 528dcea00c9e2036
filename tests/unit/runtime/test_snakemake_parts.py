"""Parts of Snakemake that are not documented: a version that lacks one is named with it."""

from __future__ import annotations

import importlib
import importlib.metadata

import pytest

# Before its other modules, which import each other.
import snakemake.api  # noqa: F401

from workflow_src.runtime.snakemake_parts import PARTS


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in PARTS.items() for name in names])
def test_this_version_of_snakemake_has_the_part(owner, name):
    module, _, kind = owner.partition(":")
    place = importlib.import_module(module)
    place = getattr(place, kind) if kind else place
    version = importlib.metadata.version("snakemake")
    # Fields of data classes have no class attribute.
    names = {*dir(place), *getattr(place, "__dataclass_fields__", {})}
    assert name in names, f"Snakemake {version} has no {kind or module}.{name}"
