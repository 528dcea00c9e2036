"""Raw pairs, and the scores that rows of tables and records may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from workflow_src.config.parts import RowsPart
from workflow_src.errors import ArtifactError, did_you_mean, nearest, short_repr

MOST_NAMES_SHOWN = 8


class RawPair(NamedTuple):
    """A pair as strings stripped of outer whitespace, and the texts and the line (from 1) that it comes from.

    A line of text in one language is both sides. Lines of generated corpora have no names. In SGML and XML, segments
    are counted; the line of a unit of a translation memory is that where it begins. Rows with a score_column have a
    score: first as the row has it, then a number. `more` are further references, where a source has several.
    """

    first: str
    second: str
    names: tuple[str, str]
    number: int
    score: Any = None
    more: tuple[str, ...] = ()


def one_line(text: str) -> str:
    """A text whose line breaks became spaces, without outer whitespace."""
    return " ".join(text.splitlines()).strip()


def folded(text: str) -> str:
    """A text on one line, with one space in place of any white space."""
    return " ".join(text.split())


def listed(names: Sequence[str]) -> str:
    """The first of some names, for an error."""
    return ", ".join(names[:MOST_NAMES_SHOWN]) + (", ..." if len(names) > MOST_NAMES_SHOWN else "")


def missing(name: str, problem: str, wanted: str, names: Sequence[str], line: int, advice: str = "") -> ArtifactError:
    """The error of a text that has no column or field of the name `wanted`, but others."""
    present = f"it has {listed(names)}" if names else "it is empty"
    similar = nearest(wanted, names)
    fix = did_you_mean(similar) if similar else advice
    return ArtifactError(name, problem, f"{present}; {fix}" if fix else present, line)


def scored(rows: Iterable[RawPair], part: RowsPart, name: str, dropped: Counter[str]) -> Iterator[RawPair]:
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


def _number(row: RawPair, part: RowsPart, name: str) -> float:
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
