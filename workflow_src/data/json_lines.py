"""Records: JSON lines, an object on each line, with texts in fields that may lie in further objects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from workflow_src.config.parts import RecordsPart
from workflow_src.data.rows import RawPair, listed, missing, one_line
from workflow_src.errors import ArtifactError, short_repr

# The value of a field that an object lacks; null is a value.
MISSING: Any = object()
FIX = "write one object on each line, as `jq -c .` does, and `jq -c '.[]'` of a list"


def record_rows(
    lines: Iterable[str], part: RecordsPart, name: str, languages: tuple[str, str], dropped: Counter[str]
) -> Iterator[RawPair]:
    """The rows of the JSON lines `name`, with the fields of two languages.

    Empty lines, and records with null in place of a text or of an object around it, are left out and counted in
    `dropped`. Raises ArtifactError naming the file and the line where a line is no object, where a field is missing,
    and where a text is none.
    """
    fields = [str(part.columns[language]) for language in languages]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            dropped["blank_line"] += 1
            continue
        record = _record(line, name, number)
        texts = [_text(record, field, name, number) for field in fields]
        score = None if part.score_column is None else _value(record, str(part.score_column), name, number)
        first, second = texts
        if first is None or second is None:
            dropped["untranslated"] += 1
            continue
        yield RawPair(first, second, (name, name), number, score)


def _record(line: str, name: str, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except RecursionError:
        raise ArtifactError(name, "has values in too many others", FIX, number) from None
    except ValueError as failure:
        raise ArtifactError(name, f"is not JSON ({failure})", FIX, number) from None
    if not isinstance(record, dict):
        raise ArtifactError(name, f"is {short_repr(record)}, not an object", FIX, number)
    return record


def _field(record: dict[str, Any], field: str) -> Any:
    """The value of a field; a dot in its name leads into an object, unless the name itself has the dot. All fields of
    null are null."""
    if field in record:
        return record[field]
    value = MISSING
    for end in (index for index, character in enumerate(field) if character == "."):
        inner = record.get(field[:end], MISSING)
        if isinstance(inner, dict) and (value_of_inner := _field(inner, field[end + 1 :])) is not MISSING:
            return value_of_inner
        if inner is None:
            value = None
    return value


def _value(record: dict[str, Any], field: str, name: str, number: int) -> Any:
    value = _field(record, field)
    if value is MISSING:
        raise missing(name, f'has no field "{field}"', field, list(_names(record)), number)
    return value


def _names(record: dict[str, Any], start: str = "") -> Iterator[str]:
    """Names of the fields of an object and of those in it."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _names(value, f"{start}{name}.")
        else:
            yield f"{start}{name}"


def _text(record: dict[str, Any], field: str, name: str, number: int) -> str | None:
    value = _value(record, field, name, number)
    if value is None:
        return None
    if not isinstance(value, str):
        inner = listed(list(_names(value, f"{field}."))) if isinstance(value, dict) else ""
        problem = f'has {short_repr(value)} in the field "{field}", where text is expected'
        raise ArtifactError(name, problem, f"name one of {inner}" if inner else "name another field", number)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as failure:
        problem = f'has half of a character, \\u{ord(value[failure.start]):04x}, in the field "{field}"'
        raise ArtifactError(name, problem, "write both of its escapes, or the character", number) from None
    return one_line(value)
