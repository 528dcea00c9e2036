"""Errors as tests look at them: by their fields. Sentences are tested in tests/unit/test_errors.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from workflow_src.errors import ConfigError, InputError


def fields_of(error: BaseException, expected: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an error that `expected` names; its sentence is one line. `mentions`: words in the sentence."""
    assert isinstance(error, InputError) and "\n" not in str(error)
    mentioned = tuple(word for word in expected.get("mentions", ()) if word in str(error))
    return {name: mentioned if name == "mentions" else getattr(error, name) for name in expected}


@contextlib.contextmanager
def refuses(kind: type[InputError] = ConfigError, /, **fields: Any) -> Iterator[None]:
    """Asserts that what runs in here is refused with an error of this kind and these fields."""
    with pytest.raises(kind) as caught:
        yield
    assert fields_of(caught.value, fields) == fields, str(caught.value)
