"""The analyses in the report: their files, and their section, made from the figures that they declare."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workflow_src.evaluation.charts import MUTED, Axis, Chart, Panel, finite, is_curve, panels, series_apart
from workflow_src.evaluation.content import Content, check
from workflow_src.evaluation.document import Beside, Block, Caption, Fold, Heading, Picture, Section, Table
from workflow_src.evaluation.labels import differing, words
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.report.captions import removal_words, source_words
from workflow_src.records.atomic import read_json
from workflow_src.registry import analyses, conventions, import_object, searches
from workflow_src.spec import Figure, FigureTable

# A row of figures, as a file has it.
Entry = Mapping[str, Any]
# Tables with more columns are as wide as the window.
WIDE = 8


def read(paths: Iterable[Path]) -> dict[str, Content]:
    """Contents of files by analysis, in the order of the report. Raises ArtifactError for a file of no analysis.

    Of an analysis that was measured on several splits, all but the first have the key `NAME-SPLIT`.
    """
    contents: dict[str, dict[str, Content]] = {}
    for path in paths:
        content = check(read_json(path), str(path), "delete it, and the next run measures it again")
        by_key = contents.setdefault(content.analysis, {})
        by_key[f"{content.analysis}-{content.split}" if by_key else content.analysis] = content
    return {key: content for name in analyses() for key, content in contents.get(name, {}).items()}


def blocks(contents: Mapping[str, Content], manifest: Manifest) -> list[Block]:
    """The blocks of all analyses, each below its title.

    The first picture of an analysis has its name; the names of others end in a number.
    """
    shown_blocks: list[Block] = []
    for name, content in contents.items():
        analysis = analyses()[content.analysis]
        own: list[Block] = list(import_object(analysis.show)(content, manifest)) if analysis.show else []
        for table, rows in content.tables:
            if rows:
                own += _Shown(table, [row.model_dump() for row in rows], content, manifest).blocks(own)
        if own:
            title = f"{analysis.title}, {content.split}" if name != content.analysis else analysis.title
            numbers = itertools.chain([""], (f"_{number}" for number in itertools.count(2)))
            shown_blocks += [Heading(title), *_named(own, name, numbers)]
    return shown_blocks


def _named(blocks: Sequence[Block], name: str, numbers: Iterator[str]) -> Iterator[Block]:
    """The blocks with names of their pictures."""
    for block in blocks:
        if isinstance(block, Picture):
            yield dataclasses.replace(block, name=f"{name}{next(numbers)}")
        elif isinstance(block, Fold | Beside | Section):
            yield dataclasses.replace(block, blocks=list(_named(block.blocks, name, numbers)))
        else:
            yield block


def column_notes(contents: Iterable[Content], split: str, manifest: Manifest) -> dict[str, str]:
    """Notes on the columns that analyses of a split fill in the main table."""
    notes: dict[str, str] = {}
    for content in contents:
        for table, rows in content.tables if content.split == split else ():
            # The first line of a row is that of the column.
            first = {(row.system, row.name, row.seed): row.model_dump() for row in reversed(rows)}
            shown = _Shown(table, list(first.values()), content, manifest)
            notes |= {term: shown.text(table.notes[term]) for term in table.column_notes if rows}
    return notes


def at_reference_lengths(contents: Iterable[Content], split: str) -> list[dict[str, Any]]:
    """Figures of decodes of a split at the references' lengths."""
    return [
        row.model_dump()
        for content in contents
        if content.split == split
        for table, rows in content.tables
        if table.at_reference_lengths
        for row in rows
    ]


@dataclasses.dataclass(frozen=True)
class _Shown:
    """A table of figures as the report shows it."""

    table: FigureTable
    rows: Sequence[Entry]
    content: Content
    manifest: Manifest

    def text(self, text: str) -> str:
        """A text of the declaration with its fields filled in."""
        report, content = self.manifest.report, self.content
        values = dict(content)
        for key in self.table.keys:
            named = dict.fromkeys(str(row[key.name]) for row in self.rows if row.get(key.name) is not None)
            values[key.name] = " and ".join(named)
        removed = removal_words(getattr(content, "remove_repetitions", None))
        column = self.manifest.convention.title
        published = f"Figures{source_words(report)} at these lengths too: compare them with the column {column}."
        values |= {
            "scope": content.scope,
            "start": self.manifest.start_title,
            "removed": f"{removed[0].upper()}{removed[1:]}.",
            "published": published if report.expected_reference_lengths else "",
        }
        return text.format_map(values)

    def blocks(self, before: Sequence[Block]) -> list[Block]:
        """A picture of the panels with the table folded away below it, as below a picture `before`, or the table."""
        caption = Caption(
            self.text(self.table.line), {term: self.text(note) for term, note in self.table.notes.items()}
        )
        heading = [Heading(self.table.title)] if self.table.title else []
        chart, shown = self._chart(), self._table()
        if chart is None:
            shown = dataclasses.replace(shown, caption=caption)
            pictured = any(isinstance(block, Picture) for block in before)
            return [*heading, Fold("The same in figures", [shown]) if pictured else shown]
        errors = ", with its errors" if any(figure.error for figure in self.table.figures) else ""
        shown = dataclasses.replace(shown, caption=Caption(f"What the figure shows{errors}."))
        picture = Picture("", chart, caption, self.text(self.table.label))
        return [*heading, picture, Fold("The same in figures", [shown])]

    def _table(self) -> Table:
        """A line for each row; that of the start, which all searches of a model share, once. Columns without any
        figure are left out."""
        entries, figures = list(self.rows), list(self.table.figures)
        if self.table.at_reference_lengths:
            published = self.manifest.report.expected_reference_lengths
            entries = [{**entry, "published": published.get(f"{entry['system']}/{entry['name']}")} for entry in entries]
            counted = [Figure(m.name, m.convention.title) for m in conventions().values() if m.convention]
            figures = [*counted, Figure("published", f"published ({self.manifest.convention.title})"), *figures]
        figures = [f for f in figures if f.head and any(entry.get(f.key) is not None for entry in entries)]
        over = self.table.over
        keys = [*self.table.keys, *([over] if over else [])]
        values = {key: {entry.get(key.name) for entry in entries} - {None} for key in keys}
        keys = [key for key in keys if len(values[key]) > (1 if key.varying else 0)]
        models, starts, lines = {entry["model"] for entry in entries}, set(), []
        for entry, label in zip(entries, self._labels(), strict=True):
            start = over is not None and entry["model"] is not None and entry.get(over.name) == 0
            if start and entry["model"] in starts:
                continue
            if start:
                starts.add(entry["model"])
                label = self.manifest.start_title + (f" · {entry['model']}" if len(models) > 1 else "")
            own = ["" if entry.get(key.name) is None else str(entry[key.name]) for key in keys]
            lines.append([label, *own, *("" if start and f.change else _cell(f, entry) for f in figures)])
        heads = ["", *(self.text(key.head) for key in keys), *(self.text(figure.head or "") for figure in figures)]
        return Table(heads, lines, numbered=True, wide=len(heads) > WIDE)

    def _labels(self) -> list[str]:
        """A row of the main table by its label there; a search by its title, with its system and the settings in which
        it differs from others of the search."""
        searching, labels = [row for row in self.rows if row["search"]], []
        seeds = {row["seed"] for row in self.rows} - {None}
        for row in self.rows:
            if row["name"] and not row["label"]:
                decode = self.manifest.find_decode(row["system"], row["name"])
                seed = f", seed {row['seed']}" if len(seeds) > 1 else ""
                labels.append(f"{row['system']}, {decode.label() if decode else row['name']}{seed}")
                continue
            label = row["label"] or (self.manifest.title(row["search"]) if row["search"] else row["system"])
            if row["search"]:
                label += f" · {row['system']}" if differing(row, searching, ["system"]) else ""
                search = searches().get(row["search"])
                settings = differing(row, searching, search.settings.named("follow") if search else ())
                label += f" · {words(settings)}" if settings else ""
            labels.append(label)
        return labels

    def _chart(self) -> Chart | None:
        """The panels that have a curve to show; None where none has."""
        over, drawn = self.table.over, []
        curves: dict[str, list[Entry]] = {}
        for label, row in zip(self._labels(), self.rows, strict=True):
            curves.setdefault(label, []).append(row)
        for figure in self.table.figures:
            if figure.panel is None or over is None:
                continue
            points = {label: list(_points(figure, over.name, rows)) for label, rows in curves.items()}
            if any(is_curve((x, y) for x, y, _ in curve) for curve in points.values()):
                level = figure.factor * getattr(self.content, figure.level) if figure.level else None
                entries = [
                    {"series": label, "x": x, "y": y, "error": error}
                    for label, curve in points.items()
                    for x, y, error in curve
                ]
                line = None if level is None else (level, MUTED, f"{level:g}")
                drawn.append(
                    Panel(self.text(figure.panel), entries, Axis(self.text(over.title), whole=True), level=line)
                )
        looks = {label: self.manifest.look(rows[0]["system"], rows[0]["search"]) for label, rows in curves.items()}
        return panels(drawn, series_apart(looks)) if drawn else None


def _points(figure: Figure, over: str, rows: Sequence[Entry]) -> Iterator[tuple[float, float, float]]:
    """The points (x, y) of a figure, with their errors."""
    for row in rows:
        values = enumerate(row[figure.key] or (), 1) if figure.listed else [(row[over], row[figure.key])]
        error = row.get(figure.error or "") or 0
        for x, y in finite(values):
            yield x, figure.factor * y, figure.factor * error


def _cell(figure: Figure, row: Entry) -> str:
    value, error = row.get(figure.key), row.get(figure.error or "")
    if value is None:
        return "–"
    text = f"{figure.factor * value:{'+' if figure.signed else ''},.{figure.digits}f}".replace("-", "−")
    return text if error is None else f"{text} ± {figure.factor * error:.{figure.digits}f}"
