"""The file of an analysis, checked by the figures that the analysis declares. No torch here.

Log-probabilities and energies are in nats, shares in [0, 1], BLEU in [0, 100], lengths and distances of outputs in
subwords. Errors are standard errors over sentences unless a table says otherwise.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any

import pydantic
from pydantic import model_validator

from workflow_src.config.experiment import Removal
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.records.checked import Lenient, check_format, checked
from workflow_src.registry import analyses
from workflow_src.spec import Analysis, FigureTable

# Format of the files of all analyses.
FORMAT = 2

Scalar = bool | int | float | str | None
# Entries of the file that texts are written from, with their types, by the field of the text.
ENTRIES_OF_TEXTS: dict[str, dict[str, Any]] = {
    "scope": {"sentences": int},
    "removed": {"remove_repetitions": Removal},
    "start": {},
    "split": {},
    "published": {},
}


class Record(Lenient):
    """Part of the file of an analysis. Its schema is built when a file is read or written, not where a plan is made."""

    model_config = pydantic.ConfigDict(defer_build=True)


class Content(Record):
    """The file of an analysis of a split: its tables by their keys, and further entries."""

    model_config = pydantic.ConfigDict(extra="allow")

    analysis: str
    split: str
    # Number of the first sentences of the split that were analysed; pairs with an empty side are skipped.
    sentences: int | None = None

    @property
    def scope(self) -> str:
        """The sentences in words, for captions."""
        return f"the first {self.sentences:,} sentences of {self.split}" if self.sentences else self.split

    @property
    def tables(self) -> list[tuple[FigureTable, tuple[Row, ...]]]:
        """The tables that the analysis declares, with their rows."""
        return [(table, getattr(self, table.key)) for table in analyses()[self.analysis].tables]


class Row(Record):
    """Figures of a search or a system (`model` is the one whose latents it moves, or which it decodes), of a row of the
    main table (`system`, `name`, `seed`), or of what `label` says; other entries are figures and settings."""

    model_config = pydantic.ConfigDict(extra="allow")

    system: str | None = None
    search: str | None = None
    model: str | None = None
    name: str | None = None
    seed: int | None = None
    label: str | None = None

    @model_validator(mode="after")
    def _named(self) -> Row:
        if self.system is None and self.label is None:
            raise ConfigError("system", problem="missing")
        return self


def fields(text: str) -> Iterator[tuple[str, str]]:
    """Names of the fields of a text, and how they are written."""
    for _, name, written, _ in string.Formatter().parse(text):
        if name:
            yield name, written or ""


def check(content: Any, where: str, advice: str) -> Content:
    """The content of the file of an analysis.

    Raises ArtifactError for the content of no analysis, or for the first wrong key. `where` names the file, and
    `advice` ends the sentence.
    """
    name = content.get("analysis") if isinstance(content, dict) else None
    if not isinstance(name, str) or name not in analyses():
        raise ArtifactError(where, f"is no analysis ({', '.join(analyses())})", advice)
    check_format(content, FORMAT, where, advice)
    return checked(_schema(analyses()[name]), content, where, advice)


def _schema(analysis: Analysis) -> type[Content]:
    """The class that checks the file of an analysis: its tables, and the entries that their texts name."""
    entries: dict[str, Any] = {}
    base: type[Content] = analysis.content or Content
    for table in analysis.tables:
        row: Any = _row_schema(table)
        entries[table.key] = tuple[row, ...]
        levels = [f"{{{figure.level}:g}}" for figure in table.figures if figure.level]
        for name, written in (field for text in (*table.texts, *levels) for field in fields(text)):
            if name not in {key.name for key in table.keys}:
                entries |= ENTRIES_OF_TEXTS.get(name, {name: int | float if written else Scalar})
    required: dict[str, Any] = {name: (kind, ...) for name, kind in entries.items()}
    return pydantic.create_model(analysis.name, __base__=base, **required)


def _row_schema(table: FigureTable) -> type[Row]:
    """The class that checks a row of a table."""
    numbers: dict[str, Any] = {}
    for figure in table.figures:
        kind: Any = tuple[float, ...] if figure.listed else float
        kind = kind | None if figure.optional else kind
        numbers |= dict.fromkeys(filter(None, (figure.key, figure.error)), (kind, ...))
        if table.over and figure.panel and not figure.listed:
            numbers[table.over.name] = (int, ...)
    return pydantic.create_model(table.key, __base__=Row, **numbers)
