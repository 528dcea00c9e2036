"""Rows of tables and records: a text in each language of a direction, and perhaps a score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from workflow_src.config.datasets import RowsPart
from workflow_src.errors import ArtifactError, short_repr


class Row(NamedTuple):
    """The line of a row, from 1, its texts on one line each, and its score: first as the row has it, then a number."""

    number: int
    first: str
    second: str
    score: Any = None


def one_line(text: str) -> str:
    """A text whose line breaks became spaces, without outer whitespace."""
    return " ".join(text.splitlines()).strip()


def scored(rows: Iterable[Row], part: RowsPart, name: str, dropped: Counter[str]) -> Iterator[Row]:
    """The rows of the text `name` with numbers as scores; None where a row has none.

    Rows below the minimum score, and those without a score where there is a minimum, are left out and counted in
    `dropped`. Raises ArtifactError naming the text and the line where a score is no number, and for a text without
    rows.
    """
    count, has_scores = 0, part.has_scores
    for row in rows:
        if has_scores:
            score = None if row.score is None else _number(row, part, name)
            # Written so that NaN is left out.
            if part.minimum_score is not None and not (score is not None and score >= part.minimum_score):
                dropped["minimum_score"] += 1
                continue
            row = row._replace(score=score)
        count += 1
        yield row
    if not count:
        reason = "" if part.minimum_score is None else f" with the score {part.minimum_score} or a higher one"
        raise ArtifactError(name, f"has no row{reason}", f"check the text{reason and ', or lower minimum_score'}")


def _number(row: Row, part: RowsPart, name: str) -> float:
    try:
        if not isinstance(row.score, bool):
            return float(row.score)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ArtifactError(
        name,
        f"has {short_repr(row.score)} in column {part.score_column} of line {row.number}, where a score is expected",
        "check score_column in the dataset, or set header: true if the first row of a table names its columns",
    )
