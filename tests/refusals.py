"""Errors as tests look at them: by their fields. Sentences are tested in tests/unit/test_errors.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workflow_src.errors import InputError


def fields_of(error: BaseException, expected: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an error that `expected` names; its sentence is one line. `mentions`: words in the sentence."""
    assert isinstance(error, InputError) and "\n" not in str(error)
    mentioned = tuple(word for word in expected.get("mentions", ()) if word in str(error))
    return {name: mentioned if name == "mentions" else getattr(error, name) for name in expected}
