"""From a dataset's files to line-aligned raw text: parts, markup and tables."""

from __future__ import annotations

import contextlib
import csv
import functools
import glob
import itertools
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, TypeVar

from workflow_src.config.datasets import DatasetFiles, TablePart, TextPart, file_and_members
from workflow_src.config.languages import two_letters
from workflow_src.config.texts import MONOLINGUAL
from workflow_src.data.formats import START, compression
from workflow_src.data.lines import count_lines
from workflow_src.data.markup import Segment, has_source_and_references, same_segments, segments, without_markup
from workflow_src.data.unpack import Archives, reported
from workflow_src.errors import ArtifactError, ConfigError, nearest
from workflow_src.records.atomic import read_json

if TYPE_CHECKING:
    from workflow_src.config.plan import Plan

Pair = tuple[str, str]
Line = TypeVar("Line")
Other = TypeVar("Other")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Characters of a cell of CSV.
LONGEST_CELL = 1 << 24
NO_QUOTES = "set quoted: false in its part if quotes are text"
# Names of columns that name no language.
SIDES = ("source", "target", "src", "tgt", "trg")
log = logging.getLogger("continuum")


class RawPair(NamedTuple):
    """A pair as strings stripped of outer whitespace, and the texts and the line (from 1) that it comes from.

    A line of text in one language is both sides. Lines of generated corpora have no names. In SGML and XML, segments
    are counted. Rows of tables with a score_column have a score. `more` are further references, where a source has
    several.
    """

    first: str
    second: str
    names: tuple[str, str]
    number: int
    score: float | None = None
    more: tuple[str, ...] = ()


class RawCorpus:
    """Pairs of a dataset in one direction, source and target: those of its parts under train, dev and each test set.

    With one language, the lines of its texts (`Part.texts`).

    `locate` gives the local path of a key of the dataset's `files` (it may download); `folder` is the user's, for
    datasets of kind `folder`. Other paths are the user's own, relative to the working directory. Use as a context
    manager. Texts are streamed. `dropped` counts lines left out, by train, dev or test set and by reason: `markup`
    (lines that are tags), `minimum_score`, and `blank_line` and `header` of tables.
    """

    def __init__(
        self,
        dataset: DatasetFiles,
        languages: tuple[str, ...],
        locate: Callable[[str], Path],
        folder: str | None = None,
    ):
        for language in languages:
            if language not in dataset.languages:
                raise ConfigError(f"language of dataset {dataset.name}", language, allowed=dataset.languages)
        if dataset.kind == "folder":
            check_folder(dataset, folder)
        self.dataset, self.languages, self.locate, self.folder = dataset, languages, locate, folder
        self.dropped: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._archives = Archives()

    def __enter__(self) -> RawCorpus:
        return self

    def __exit__(self, *_: object) -> None:
        self._archives.__exit__()

    def parts(self) -> Iterator[tuple[str, Iterable[RawPair]]]:
        """(split, its pairs) for train, dev and every test set of the dataset; consume the pairs of a split before
        asking for the next.

        Raises ConfigError or ArtifactError with one sentence.
        """
        if self.dataset.generated:
            from workflow_src.data.toy import grammar

            yield from self._generated(grammar.generate(self.dataset.generated))
            return
        for name in self.dataset.raw_splits:
            yield name, self.parts_of(name)

    def _generated(self, corpus: dict[str, list[Pair]]) -> Iterator[tuple[str, Iterator[RawPair]]]:
        if set(self.languages) != {"de", "en"}:
            raise ConfigError("languages", list(self.languages), problem="the corpus is generated", allowed="de and en")
        turn = 1 if self.languages == ("de", "en") else -1
        for name in self.dataset.raw_splits:
            yield (
                name,
                (
                    RawPair(pair[::turn][0], pair[::turn][1], ("", ""), line)
                    for line, pair in enumerate(corpus[name], 1)
                ),
            )

    def parts_of(self, split: str) -> Iterator[RawPair]:
        """The pairs of the parts of a split."""
        for number in range(len(self.dataset.parts[split])):
            yield from self.part(split, number)

    def part(self, split: str, number: int) -> Iterator[RawPair]:
        """The pairs of one part of a split, counted from 0."""
        dropped, part = self.dropped[split], self.dataset.parts[split][number]
        for language in self.languages:
            if language not in part.languages:
                where = f"language of {self.dataset.place(split, number)}"
                raise ConfigError(where, language, allowed=part.languages)
        first, second = self.languages[0], self.languages[-1]
        if isinstance(part, TextPart) and len(self.languages) == 1:
            (name,) = part.texts[first]
            with self._lines(name) as lines:
                for line_number, line in enumerate(lines, 1):
                    yield RawPair(line, line, (name, name), line_number)
        elif isinstance(part, TextPart):
            yield from self._with_references(part, part.texts[first][0], part.texts[second], dropped)
        else:
            yield from self._table(part, [part.columns[first], part.columns[second]], dropped)

    def _with_references(
        self, part: TextPart, source: str, targets: tuple[str, ...], dropped: Counter[str]
    ) -> Iterator[RawPair]:
        """The pairs of a source and its first target, with the lines of the other targets as further references."""
        first, *further_targets = targets
        pairs = self._texts(part, (source, first), dropped)
        for name in further_targets:
            lines = (pair.second for pair in self._texts(part, (source, name), Counter()))
            pairs = (pair._replace(more=(*pair.more, line)) for pair, line in aligned(pairs, lines, first, name))
        yield from pairs

    def _texts(self, part: TextPart, names: tuple[str, str], dropped: Counter[str]) -> Iterator[RawPair]:
        first, second = names
        if part.markup == "sgm":
            sources, targets = self._segments(part, first, second)
            pairs = same_segments(aligned(sources, targets, first, second), first, second)
            for number, (a, b) in enumerate(pairs, 1):
                yield RawPair(a, b, names, number)
            return
        with self._lines(first) as left, self._lines(second) as right:
            numbered: Iterator[tuple[int, Pair]] = enumerate(aligned(left, right, first, second), 1)
            if part.markup == "ted":
                numbered = without_markup(numbered, first, second, dropped)
            for number, (a, b) in numbered:
                yield RawPair(a, b, names, number)

    def _segments(self, part: TextPart, *names: str) -> Iterator[Iterator[Segment]]:
        """The segments of the text of each language."""
        texts = []
        for name in names:
            with self._lines(name) as lines:
                texts.append("\n".join(lines))
        if not any(map(has_source_and_references, texts)):
            if names[0] == names[1]:
                raise ArtifactError(names[0], "has no <src> and <ref> elements", "name a file for each language")
            if part.translator is not None:
                raise ArtifactError(
                    names[0], f"and {names[1]} have no references by translators", "remove translator from their part"
                )
        for text, name, language in zip(texts, names, self.languages, strict=True):
            yield iter(segments(text, name, language, part.translator))

    def _table(self, part: TablePart, columns: list[int], dropped: Counter[str]) -> Iterator[RawPair]:
        table = part.table
        with self._lines(table, strip=False) as lines:
            for number, a, b, score in table_pairs(lines, part, table, columns, dropped):
                yield RawPair(a, b, (table, table), number, score)

    @contextlib.contextmanager
    def _lines(self, text: str, strip: bool = True) -> Iterator[Iterator[str]]:
        with text_lines(text, self._path, self._archives) as lines:
            yield (line.strip() for line in lines) if strip else lines

    def _path(self, name: str) -> Path:
        if name in self.dataset.files:
            return self.locate(name)
        if self.dataset.kind != "folder":
            return _own_path(name, self.dataset.files)
        assert self.folder is not None, "`check_folder` refuses it"
        path = Path(self.folder) / name
        if not path.is_file():
            raise ArtifactError(
                name,
                f"of dataset {self.dataset.name} is missing from the folder {self.folder}",
                _one_line(self.dataset.folder_hint),
            )
        return path


@contextlib.contextmanager
def text_lines(text: str, locate: Callable[[str], Path], archives: Archives) -> Iterator[Iterator[str]]:
    """The lines of a text, `FILE`, `FILE!MEMBER` or `FILE!MEMBER!MEMBER`; `locate` gives the path of FILE.

    Raises ArtifactError for a text without lines, and for one that cannot be read.
    """
    name, *members = file_and_members(text)
    with archives.open(locate(name), *members) as stream:
        yield nonempty(reading(decoded(stream, text), text), text)


def _own_path(name: str, files: Iterable[str]) -> Path:
    """Path of a file of the user's. Raises ArtifactError where it is not there; `files` are those of the dataset."""
    path = Path(name)
    if not path.is_file():
        similar = nearest(name, files)
        fix = "correct its path, which starts from the working directory"
        if any(path.parent.glob(f"{glob.escape(path.name)}!*")):
            fix += ", and write a ! of its name as !!"
        raise ArtifactError(
            name,
            "does not exist and is no file of the dataset",
            f"{fix}; did you mean {similar}?" if similar else fix,
        )
    return path


def count_training_pairs(dataset: DatasetFiles, languages: tuple[str, str]) -> int | None:
    """Pairs of the user's own training texts, before any filter; None where they are elsewhere or cannot be read.

    Uncompressed lines are counted without decoding them; compressed ones, tables and markup are read as `RawCorpus`
    does.
    """
    names = [part.table if isinstance(part, TablePart) else part.texts[languages[0]][0] for part in dataset.train]
    if dataset.kind != "files" or any(name in dataset.files or not Path(name).is_file() for name in names):
        return None
    if all(isinstance(part, TextPart) and part.markup == "none" for part in dataset.train) and not any(
        map(_is_compressed, names)
    ):
        return sum(map(count_lines, names))
    try:
        with RawCorpus(dataset, languages, Path) as corpus:
            return sum(1 for _ in corpus.parts_of("train"))
    except (ArtifactError, ConfigError):
        # The job that reads them reports the error.
        return None


def monolingual_lines(plan: Plan) -> int | None:
    """Lines of text of the source language: the recorded count, else that of the user's files, else the recipe's limit.

    None without any of these. Compressed files, and files in archives, are not counted.
    """
    summary, limit = Path(plan.files.monolingual_summary), plan.recipe.limits.get(MONOLINGUAL)
    if summary.exists():
        content = read_json(summary)
        try:
            return int(content["pairs"][MONOLINGUAL])
        except (LookupError, TypeError, ValueError):
            raise ArtifactError(summary, "does not count its lines", "delete it, and it is made again") from None
    names = plan.monolingual_texts
    are_local = names == list(plan.own_monolingual.values()) and all(Path(name).is_file() for name in names)
    if not names or not are_local or any(map(_is_compressed, names)):
        return limit
    lines = sum(map(count_lines, names))
    return min(lines, limit) if limit else lines


def _is_compressed(name: str) -> bool:
    with open(name, "rb") as file:
        return compression(file.read(START)) is not None


def check_folder(dataset: DatasetFiles, folder: str | None) -> None:
    """Raises ConfigError, with the dataset's own hint, when the user's folder is not given or is not there."""
    hint = _one_line(dataset.folder_hint)
    if folder is None:
        problem = f"dataset {dataset.name} cannot be downloaded"
        raise ConfigError("recipe.folder", problem=problem, hint=f"name its folder ({hint})")
    if not Path(folder).is_dir():
        raise ConfigError("recipe.folder", str(folder), problem="it does not exist", hint=hint)


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def decoded(stream: IO[bytes], name: str) -> Iterator[str]:
    """Lines of a UTF-8 stream without line ends (LF or CR LF) and without a byte order mark.

    Raises ArtifactError naming the text, the line and the byte (counted from 1, in the line) where it is not UTF-8.
    """
    for number, line in enumerate(stream, 1):
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as failure:
            if 0 in line:
                raise ArtifactError(name, "has bytes that are in no text", "check the file", line=number) from None
            raise ArtifactError(
                name,
                f"is not UTF-8: byte {failure.start + 1} is 0x{line[failure.start]:02x}",
                "convert the file to UTF-8",
                line=number,
            ) from None
        yield text.rstrip("\r\n")


def reading(lines: Iterator[str], name: str) -> Iterator[str]:
    """`lines`; an error of reading damaged bytes becomes an ArtifactError."""
    with reported(name):
        yield from lines


def nonempty(lines: Iterator[str], name: str) -> Iterator[str]:
    """`lines`; raises ArtifactError naming the text when there are none."""
    first = next(lines, None)
    if first is None:
        raise ArtifactError(name, "is empty: it has no lines of text", "check the file")
    yield from itertools.chain([first], lines)


def aligned(
    left: Iterator[Line], right: Iterator[Other], left_name: str, right_name: str
) -> Iterator[tuple[Line, Other]]:
    """Pairs of lines (or segments). Raises ArtifactError with both names and counts when one text is longer."""
    count = 0
    for a, b in itertools.zip_longest(left, right):
        if a is None or b is None:
            longer = count + 1 + sum(1 for _ in (right if a is None else left))
            counts = (count, longer) if a is None else (longer, count)
            raise ArtifactError(
                left_name,
                f"has {counts[0]} lines, but {right_name} has {counts[1]}",
                "texts of one part must be aligned line by line",
            )
        count += 1
        yield a, b


def table_rows(
    lines: Iterable[str], part: TablePart, name: str, dropped: Counter[str]
) -> Iterator[tuple[int, list[str]]]:
    """(the line where a row ends, its cells) of the table `name`, without its row of names if it has one.

    Where cells may be quoted, these are read as RFC 4180 has it, and line breaks inside of cells become spaces. Empty
    lines are no rows, and are counted in `dropped`. Raises ArtifactError naming the table and the line where quotes do
    not fit, or where rows differ in their columns, as after a quote that is never closed, or with a separator inside of
    a text.
    """
    rows = _quoted_rows(lines, part.separator, name) if part.is_quoted else _plain_rows(lines, part.separator)
    width = None
    for number, cells in rows:
        if not cells:
            dropped["blank_line"] += 1
            continue
        if width not in (None, len(cells)):
            raise ArtifactError(
                name,
                f"has {len(cells)} columns, and the rows before it have {width}",
                "remove separators from its texts" if not part.is_quoted else "correct its quotes, or " + NO_QUOTES,
                line=number,
            )
        if width is not None or not part.header:
            yield number, cells
        width = len(cells)


def _plain_rows(lines: Iterable[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, 1):
        yield number, line.split(separator) if line.strip() or separator in line else []


def _quoted_rows(lines: Iterable[str], separator: str, name: str) -> Iterator[tuple[int, list[str]]]:
    # The csv module leaves line breaks in cells to its caller: without them, words would be joined.
    reader = csv.reader((line + "\n" for line in lines), delimiter=separator, strict=True)
    csv.field_size_limit(LONGEST_CELL)
    try:
        for row in reader:
            is_blank = len(row) == 1 and not row[0].strip()
            yield reader.line_num, [] if is_blank else [" ".join(cell.splitlines()) for cell in row]
    except csv.Error as failure:
        if "field limit" in str(failure):
            problem = f"has a cell of more than {LONGEST_CELL:,} characters, which ends in this line or later"
            raise ArtifactError(
                name, problem, "shorten it; if a quote is never closed, correct it, or " + NO_QUOTES, reader.line_num
            ) from None
        raise ArtifactError(
            name,
            f"cannot be read as CSV up to line {reader.line_num} ({failure})",
            "correct its quotes, or " + NO_QUOTES,
        ) from None


def names_its_columns(cells: Sequence[str], columns: Mapping[str, int]) -> bool:
    """True for a row whose cells are the names of its `columns`, by language: codes, English names, or the side."""
    from iso639 import Language, LanguageNotFoundError

    for language, column in columns.items():
        names = {language.casefold(), *SIDES}
        with contextlib.suppress(LanguageNotFoundError):
            names.add(Language.match(language).name.casefold())
        cell = cells[column].strip().casefold()
        if cell not in names and two_letters(cell) != two_letters(language):
            return False
    return True


@functools.cache
def _warn_of_header(name: str) -> None:
    """Warn once, though a command reads a table several times."""
    log.warning("warning: the first row of %s names its columns and is left out; set header: true", name)


def table_pairs(
    lines: Iterable[str], part: TablePart, name: str, columns: list[int], dropped: Counter[str]
) -> Iterator[tuple[int, str, str, float | None]]:
    """Number, two columns and the score of the lines of the table `name`.

    Rows below the minimum score, empty lines, and a first row that names its columns are left out and counted in
    `dropped`.

    Raises ArtifactError naming the table and the line where a column is missing or a score is no number.
    """
    column_count = max([*columns, part.score_column or 0]) + 1
    by_language = {language: column for language, column in part.columns.items() if column in columns}
    row_count, score, is_first = 0, None, True
    for number, cells in table_rows(lines, part, name, dropped):
        if len(cells) < column_count:
            raise ArtifactError(
                name,
                f"has {len(cells)} columns in line {number}, but {column_count} are needed",
                "check columns and separator in the dataset",
            )
        if is_first and not part.header and names_its_columns(cells, by_language):
            _warn_of_header(name)
            dropped["header"] += 1
            is_first = False
            continue
        is_first = False
        if part.score_column is not None:
            try:
                score = float(cells[part.score_column])
            except ValueError:
                raise ArtifactError(
                    name,
                    f"has {cells[part.score_column]!r} in column {part.score_column} of line {number}, where a "
                    "score is expected",
                    "check score_column in the dataset, or set header: true if the table's first row names its columns",
                ) from None
            # Written so that NaN is left out.
            if part.minimum_score is not None and not score >= part.minimum_score:
                dropped["minimum_score"] += 1
                continue
        row_count += 1
        yield number, cells[columns[0]].strip(), cells[columns[1]].strip(), score
    if not row_count:
        reason = "" if part.minimum_score is None else f" with the score {part.minimum_score} or a higher one"
        raise ArtifactError(name, f"has no row{reason}", f"check the table{reason and ', or lower minimum_score'}")
