"""Rows of texts: tables, with cells between separators or as CSV, and records, which are JSON lines."""

from __future__ import annotations

import contextlib
import csv
import functools
import itertools
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from workflow_src.config.languages import two_letters
from workflow_src.config.parts import RecordsPart, TablePart
from workflow_src.data.rows import RawPair, listed, missing, one_line
from workflow_src.errors import ArtifactError, short_repr

# Characters of a cell of CSV.
LONGEST_CELL = 1 << 24
NO_QUOTES = "set quoted: false in its part if quotes are text"
# Names of columns that name no language.
SIDES = ("source", "target", "src", "tgt", "trg", "original", "translation", "source text", "target text")
# The code of a language, alone or with countries and scripts.
TAG = re.compile(r"([a-z]{2,3})(?:[-_](?:[a-z]{2}|[a-z]{4}|[0-9]{3}))*")
# Names of frequent languages in themselves.
OWN_NAMES = {
    **{"deutsch": "de", "français": "fr", "español": "es", "português": "pt", "italiano": "it", "nederlands": "nl"},
    **{"polski": "pl", "čeština": "cs", "svenska": "sv", "dansk": "da", "norsk": "no", "suomi": "fi", "türkçe": "tr"},
    **{"română": "ro", "magyar": "hu", "ελληνικά": "el", "русский": "ru", "українська": "uk", "العربية": "ar"},
    **{"עברית": "he", "हिन्दी": "hi", "中文": "zh", "日本語": "ja", "한국어": "ko", "tiếng việt": "vi"},
}
# The value of a field that an object lacks; null is a value.
MISSING: Any = object()
FIX_OF_RECORDS = "write one object on each line, as `jq -c .` does, and `jq -c '.[]'` of a list"
log = logging.getLogger("continuum")


def table_rows(
    lines: Iterable[str], part: TablePart, name: str, languages: tuple[str, str], dropped: Counter[str]
) -> Iterator[RawPair]:
    """The rows of the table `name`, with the columns of two languages.

    Empty lines, and a first row that names its columns though the part does not say so, are left out and counted in
    `dropped`. Raises ArtifactError naming the table where a column is missing, and where cells cannot be told apart.
    """
    rows = _rows_of_cells(lines, part, name, dropped)
    first_row = next(rows, None)
    if first_row is None:
        return
    number, head = first_row
    numbers = {
        setting: _column_number(column, head, part, name, number) for setting, column in part.column_settings.items()
    }
    of_languages = {language: numbers[f"columns.{language}"] for language in languages}
    if not part.header and _names_its_columns(head, of_languages):
        _warn_once("warning: the first row of %s names its columns and is left out; set header: true", name)
        dropped["header"] += 1
    elif not part.header:
        rows = itertools.chain([first_row], rows)
    first, second = (of_languages[language] for language in languages)
    score = numbers.get("score_column")
    for number, cells in rows:
        texts = cells[first].strip(), cells[second].strip()
        yield RawPair(*texts, (name, name), number, None if score is None else cells[score])


def _column_number(column: int | str, head: Sequence[str], part: TablePart, name: str, line: int) -> int:
    """The number, from 0, of a column in the first row of a table. Raises ArtifactError where it is not there."""
    if isinstance(column, str):
        names = [cell.strip() for cell in head]
        if names.count(column) == 1:
            return names.index(column)
        if column in names:
            raise ArtifactError(name, f'has several columns "{column}"', "give the number of one, from 0", line)
        problem, advice = f'has no column "{column}" in its first row', "check columns and separator"
        raise missing(name, problem, column, names, line, advice)
    most = max(number for number in part.column_settings.values() if isinstance(number, int))
    if most >= len(head):
        problem = f"has {_columns(len(head))} in line {line}, but {most + 1} are needed"
        raise ArtifactError(name, problem, "check columns and separator in the dataset")
    return column


def _columns(count: int) -> str:
    return f"{count} column{'s' * (count != 1)}"


def _rows_of_cells(
    lines: Iterable[str], part: TablePart, name: str, dropped: Counter[str]
) -> Iterator[tuple[int, list[str]]]:
    """(the line where a row ends, its cells), equally many in each row.

    Where cells may be quoted, these are read as RFC 4180 has it, and line breaks in them become spaces. Empty lines are
    no rows, and are counted in `dropped`.
    Raises ArtifactError naming the table and the line where quotes do not fit, or where rows differ in their columns,
    as after a quote that is never closed, or with a separator inside of a text.
    """
    rows = (
        _quoted_rows(lines, part.separator, name)
        if part.is_quoted
        else _plain_rows(lines, part.separator, name, part.quoted is not None)
    )
    width = None
    for number, cells in rows:
        if not cells:
            dropped["blank_line"] += 1
            continue
        if width not in (None, len(cells)):
            problem = f"has {_columns(len(cells))}, and the rows before it have {width}"
            fix = "remove separators from its texts" if not part.is_quoted else "correct its quotes, or " + NO_QUOTES
            raise ArtifactError(name, problem, fix, line=number)
        width = len(cells)
        yield number, cells


def _plain_rows(lines: Iterable[str], separator: str, name: str, stated: bool) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, 1):
        cells = line.split(separator) if line.strip() or separator in line else []
        if not stated and any(map(_is_quoted, cells)):
            _warn_once("warning: %s has cells in quotes, with quotes inside of them doubled; set quoted: true", name)
        yield number, cells


def _is_quoted(cell: str) -> bool:
    """Whether a writer of CSV put a cell in quotes, with a quote inside."""
    cell = cell.strip()
    return (
        len(cell) > 3 and cell[0] == cell[-1] == '"' and '""' in cell[1:-1] and '"' not in cell[1:-1].replace('""', "")
    )


def _quoted_rows(lines: Iterable[str], separator: str, name: str) -> Iterator[tuple[int, list[str]]]:
    # The csv module leaves line breaks in cells to its caller: without them, words would be joined.
    reader = csv.reader((line + "\n" for line in lines), delimiter=separator, strict=True, skipinitialspace=True)
    csv.field_size_limit(LONGEST_CELL)
    try:
        for row in reader:
            is_blank = len(row) == 1 and not row[0].strip()
            yield reader.line_num, [] if is_blank else [one_line(cell) for cell in row]
    except csv.Error as failure:
        if "field limit" in str(failure):
            problem = f"has a cell of more than {LONGEST_CELL:,} characters, which ends in this line or later"
            raise ArtifactError(
                name, problem, "shorten it; if a quote is never closed, correct it, or " + NO_QUOTES, reader.line_num
            ) from None
        problem = f"cannot be read as CSV up to line {reader.line_num} ({failure})"
        raise ArtifactError(name, problem, "correct its quotes, or " + NO_QUOTES) from None


def _names_its_columns(cells: Sequence[str], columns: Mapping[str, int]) -> bool:
    """True for a row whose cells are the names of its `columns`, by language: codes, names, or the side."""
    from iso639 import Language, LanguageNotFoundError

    for language, column in columns.items():
        names = {language.casefold(), *SIDES}
        with contextlib.suppress(LanguageNotFoundError):
            names.add(Language.match(language).name.casefold())
        cell = cells[column].strip().casefold()
        tag = TAG.fullmatch(cell)
        code = OWN_NAMES.get(cell) or (tag[1] if tag else cell)
        if cell not in names and two_letters(code) != two_letters(language):
            return False
    return True


@functools.cache
def _warn_once(sentence: str, name: str) -> None:
    """Warn once of the table `name`, though a command reads it several times."""
    log.warning(sentence, name)


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
        first, second = (_text(record, field, name, number) for field in fields)
        score = None if part.score_column is None else _value(record, str(part.score_column), name, number)
        if first is None or second is None:
            dropped["untranslated"] += 1
            continue
        yield RawPair(first, second, (name, name), number, score)


def _record(line: str, name: str, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except RecursionError:
        raise ArtifactError(name, "has values in too many others", FIX_OF_RECORDS, number) from None
    except ValueError as failure:
        raise ArtifactError(name, f"is not JSON ({failure})", FIX_OF_RECORDS, number) from None
    if not isinstance(record, dict):
        raise ArtifactError(name, f"is {short_repr(record)}, not an object", FIX_OF_RECORDS, number)
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
