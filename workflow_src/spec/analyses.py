"""Declarations of analyses: their settings, selections, figures and code."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic.dataclasses import dataclass

from workflow_src.spec.fields import CHECKED, Code, FigureName, RuleName, Title
from workflow_src.spec.sections import Frozen

# auto: where the experiment has something that fits; true: something must fit.
Enabled = bool | Literal["auto"]


class Use(enum.Enum):
    """The use of a setting outside of its analysis, in the `Annotated` of the setting."""

    # The setting bounds memory and changes no result: the rule does not rerun when it changes.
    LIMIT = enum.auto()
    # The setting decides what is selected, which the rule's settings list.
    SELECTS = enum.auto()
    # The setting names systems that are selected.
    SYSTEMS = enum.auto()


class AnalysisSettings(Frozen):
    """Base of the settings of every analysis: its section under `analyses` in a configuration."""

    enabled: Enabled = "auto"

    @classmethod
    def named(cls, *uses: Use) -> tuple[str, ...]:
        """Fields with one of these uses."""
        return tuple(name for name, field in cls.model_fields.items() if set(uses).intersection(_uses(field)))

    @classmethod
    def selecting(cls) -> tuple[str, ...]:
        """Fields that decide what is selected."""
        return ("enabled", *cls.named(Use.SELECTS, Use.SYSTEMS))


def _uses(field: Any) -> Iterable[Use]:
    return (item for item in field.metadata if isinstance(item, Use))


@dataclasses.dataclass(frozen=True)
class Selection:
    """The systems and translations that an analysis looks at; false where both are empty.

    systems       systems whose bundles are read, of the first seed
    translations  files of translations (details, one JSON object a line) that are read
    entries       entries of the rule's settings beside those of the analysis
    """

    systems: tuple[str, ...] = ()
    translations: tuple[str, ...] = ()
    entries: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        searches: Iterable[Mapping[str, Any]] = (),
        rows: Iterable[Mapping[str, Any]] | None = None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> Self:
        """The selection of `searches` (or systems; each has `system`) and of `rows` (each has `details`, a file).

        `more` are further entries.
        """
        searches, rows = list(searches), None if rows is None else list(rows)
        entries = {"searches": searches} | ({} if rows is None else {"rows": rows}) | dict(more)
        systems = dict.fromkeys(search["system"] for search in searches)
        return cls(tuple(systems), tuple(row["details"] for row in rows or ()), entries)

    def __bool__(self) -> bool:
        return bool(self.systems or self.translations)


@dataclass(frozen=True, config=CHECKED)
class Key:
    """A key that tells rows of figures apart, and its column.

    head     heading of the column
    title    title of the horizontal axis of panels over it
    varying  whether the column is left out where all rows have the same
    """

    name: str
    head: str
    title: str = ""
    varying: bool = False


@dataclass(frozen=True, config=CHECKED)
class Figure:
    """A figure of rows: a finite number in the file, and its column and panel in the report.

    head      heading of its column; None: tables lack it
    digits    after its decimal point
    signed    whether it has a plus sign too
    factor    it is shown times this: 100 for percent
    error     key of its standard error: ± in tables, bars in panels
    panel     title of its panel; None: it is not drawn
    level     key of the number in the file at which the panel has a dotted line
    optional  whether it may be null
    change    whether it is of what steps change: it has no cell at step 0
    listed    whether it is a list of numbers, which are drawn over 1, 2, …
    column    heading of its column in the main table, for figures of its rows; it is in figures.csv by its key then
    """

    key: FigureName
    head: str | None = None
    digits: int = 1
    signed: bool = False
    factor: float = 1.0
    error: FigureName | None = None
    panel: str | None = None
    level: str | None = None
    optional: bool = False
    change: bool = False
    listed: bool = False
    column: str | None = None


@dataclass(frozen=True, config=CHECKED)
class FigureTable:
    """Rows with the same figures: a list of objects in the file; a table, and panels of curves, in the report.

    Further keys of a row say what it is of: `system`; `search` with the settings that analyses keep, and `model`;
    `name` and `seed` of a row of the main table; or a `label` of its own.

    Texts, heads and titles of panels may have fields, as those of `str.format`: any entry of the file, values of
    `keys`, `scope` (the sentences in words), `start` (the title of outputs at step 0), `removed` (what is done about
    repetitions), `published` (how published figures compare).

    line    caption of the table, or of the picture that it is folded below
    notes   on the caption, by their subjects; empty ones are left out
    key     name of the list in the file
    title   heading above the table
    keys    columns before those of the figures
    over    key of the numbers that panels have on their horizontal axis, and a column; rows at 0 are those of the
            start, which all searches of a model share
    label   the picture in words, for readers who cannot see it
    column_notes          subjects of notes that the caption of the main table has too
    at_reference_lengths  whether rows are decodes at the references' lengths: they have BLEU in every convention too,
                          which stands beside published figures, and in tables of grids
    """

    figures: tuple[Figure, ...]
    line: str
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    key: FigureName = "rows"
    title: str | None = None
    keys: tuple[Key, ...] = ()
    over: Key | None = None
    label: str = ""
    column_notes: tuple[str, ...] = ()
    at_reference_lengths: bool = False

    @property
    def texts(self) -> list[str]:
        """Texts of the report that may have fields."""
        texts = [self.line, *self.notes.values(), self.label]
        for key in (*self.keys, *([self.over] if self.over else [])):
            texts += [key.head, key.title]
        for figure in self.figures:
            texts += [figure.head or "", figure.panel or ""]
        return texts


@dataclass(frozen=True, config=CHECKED)
class Analysis:
    """A measurement beside the rows of the tables, with a file, a rule and a section of the report.

    title     heading in the report
    settings  a class of its own; `enabled` is "auto" or False by default
    select    (settings, `config.resolved.Loaded`) -> Selection; helpers are in `config.plan.selection`
    needs     what an experiment must have for it, as a sentence without its end: "it follows refinement of latents"
    measure   (`evaluation.analyses.inputs.Inputs`, settings) -> content of its file, as JSON has it
    content   class that the file is checked by, derived from `evaluation.content.Content`
    show      (content, `evaluation.manifest.Manifest`) -> list of blocks of `evaluation.document`
    split     of the sentences; None: that of the main table
    rule      name of its rule; None: measure_NAME
    message   message of its rule while it runs
    float32   whether it is computed in float32, whatever the machine's precision
    hours     that its job may take on a cluster
    order     place in the report
    """

    name: RuleName
    title: Title
    settings: type[AnalysisSettings]
    select: Callable[[Any, Any], Selection]
    needs: str
    measure: Code
    tables: tuple[FigureTable, ...] = ()
    content: type[Any] | None = None
    show: Code | None = None
    split: Literal["dev", "test"] | None = None
    rule: RuleName | None = None
    message: str | None = None
    float32: bool = False
    hours: int = 1
    order: int = 100

    @property
    def rule_name(self) -> str:
        return self.rule or f"measure_{self.name}"

    @property
    def default(self) -> AnalysisSettings:
        return self.settings()
