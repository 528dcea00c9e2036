"""From a dataset's files to line-aligned raw text: parts of all kinds."""

from __future__ import annotations

import contextlib
import glob
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from workflow_src.config.datasets import DatasetFiles
from workflow_src.config.parts import MemoryPart, RecordsPart, TablePart, TextPart, file_and_members
from workflow_src.config.texts import MONOLINGUAL, RAW
from workflow_src.data.formats import START, Contents, compression
from workflow_src.data.lines import count_lines, decoded
from workflow_src.data.markup import Segment, has_source_and_references, same_segments, segments, without_markup
from workflow_src.data.rows import RawPair, folded, scored
from workflow_src.data.tables import record_rows, table_rows
from workflow_src.data.unpack import Archives, reported
from workflow_src.errors import MISSING, ArtifactError, ConfigError, DeclarationError, nearest, readable, short_repr
from workflow_src.records.atomic import read_json
from workflow_src.records.checked import Lenient, read_file
from workflow_src.registry import import_object
from workflow_src.spec import Frozen, Generator

if TYPE_CHECKING:
    from workflow_src.config.plan import Plan

Pair = tuple[str, str]
Line = TypeVar("Line")
Other = TypeVar("Other")


class RawCorpus:
    """Pairs of a dataset in one direction, source and target: those of its parts under train, dev and each test set.

    With one language, the lines of its texts (`Part.texts`).

    `locate` gives the local path of a key of the dataset's `files` (it may download); `folder` is the user's, for
    datasets of kind `folder`. Other paths are the user's own, relative to the working directory. Use as a context
    manager. Texts are streamed. `dropped` counts lines left out, by train, dev or test set and by reason: `markup`
    (lines that are tags), `minimum_score`, `blank_line` and `header` of tables, and what units of translation memories
    and records lack or have too often (`untranslated`, `other_segment`). `inline_elements` counts those left out of
    segments of translation memories, by train, dev or test set.
    """

    def __init__(
        self,
        dataset: DatasetFiles,
        languages: tuple[str, ...],
        locate: Callable[[str], Path],
        folder: str | None = None,
    ):
        if dataset.kind == "folder":
            check_folder(dataset, folder)
        self.dataset = dataset
        self.languages = languages
        self.locate = locate
        self.folder = folder
        self.dropped: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.inline_elements: Counter[str] = Counter()
        self._archives = Archives()

    def __enter__(self) -> RawCorpus:
        return self

    def __exit__(self, *_: object) -> None:
        self._archives.__exit__()

    def parts(self) -> Iterator[tuple[str, Iterable[RawPair]]]:
        """(split, its pairs) for train, dev and every test set of the dataset; consume the pairs of a split before
        asking for the next.

        Raises ConfigError, ArtifactError or DeclarationError with one sentence.
        """
        if self.dataset.generated is not None:
            yield from self._generated(self.dataset.declared_generator, self.dataset.generated)
            return
        for name in self.dataset.raw_splits:
            yield name, self.parts_of(name)

    def _generated(self, generator: Generator, settings: Frozen) -> Iterator[tuple[str, Iterator[RawPair]]]:
        turn = 1 if self.languages == generator.languages else -1
        corpus = import_object(generator.generate)(settings)
        where = f'generator "{generator.name}"'
        # A plug-in may give anything.
        if not isinstance(corpus, Mapping) or not all(isinstance(pairs, Iterable) for pairs in corpus.values()):
            raise DeclarationError(where, f"gives {short_repr(corpus)}", "give a dictionary with pairs by split")
        for name in self.dataset.raw_splits:
            if name not in corpus:
                problem = f"it gives no split {name}, but {', '.join(corpus) or 'none at all'}"
                raise ConfigError("generator", generator.name, problem=problem)
            yield name, _generated_pairs(corpus[name], turn, where, name)

    def parts_of(self, split: str) -> Iterator[RawPair]:
        for number in range(len(self.dataset.parts[split])):
            yield from self.part(split, number)

    def part(self, split: str, number: int) -> Iterator[RawPair]:
        """The pairs of one part of a split, counted from 0."""
        dropped, part = self.dropped[split], self.dataset.parts[split][number]
        first, second = self.languages[0], self.languages[-1]
        if isinstance(part, MemoryPart):
            yield from self._units(part, (first, second), split)
        elif not isinstance(part, TextPart):
            yield from self._rows(part, (first, second), dropped)
        elif len(self.languages) > 1:
            yield from self._with_references(part, part.texts[first][0], part.texts[second], dropped)
        else:
            (name,) = part.texts[first]
            with self._lines(name) as lines:
                for line_number, line in enumerate(lines, 1):
                    yield RawPair(line, line, (name, name), line_number)

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
        source, target = self.languages
        for text, name, languages in zip(texts, names, [(source, target), (target, source)], strict=True):
            yield iter(segments(text, name, languages, part.translator))

    def _rows(
        self, part: TablePart | RecordsPart, languages: tuple[str, str], dropped: Counter[str]
    ) -> Iterator[RawPair]:
        (name,) = part.names(languages)
        with self._read(name, "JSON" if isinstance(part, RecordsPart) else "text") as lines:
            rows = (
                record_rows(lines, part, name, languages, dropped)
                if isinstance(part, RecordsPart)
                else table_rows(lines, part, name, languages, dropped)
            )
            yield from scored(rows, part, name, dropped)

    def _units(self, part: MemoryPart, languages: tuple[str, str], split: str) -> Iterator[RawPair]:
        # lxml is loaded where a translation memory is read.
        from workflow_src.data.translation_memory import units

        with self._opened(part.tmx, "TMX") as stream, reported(part.tmx):
            for pair, inline in units(stream, part.tmx, languages, part.variants, self.dropped[split]):
                if inline:
                    self.inline_elements[split] += inline
                yield pair

    @contextlib.contextmanager
    def _lines(self, text: str) -> Iterator[Iterator[str]]:
        with self._read(text, "text") as lines:
            yield (line.strip() for line in lines)

    @contextlib.contextmanager
    def _read(self, text: str, contents: Contents) -> Iterator[Iterator[str]]:
        """The lines of a text, as of `_opened`. Raises ArtifactError for a text without lines, too."""
        with self._opened(text, contents) as stream:
            yield _reported_lines(stream, text)

    def _opened(self, text: str, contents: Contents) -> contextlib.AbstractContextManager[IO[bytes]]:
        """The bytes of a text, `FILE`, `FILE!MEMBER` or `FILE!MEMBER!MEMBER`.

        Raises ArtifactError for one that cannot be read.
        """
        name, *members = file_and_members(text)
        return self._archives.open(self._path(name), *members, contents=contents)

    def _path(self, name: str) -> Path:
        if name in self.dataset.files:
            return self.locate(name)
        if self.dataset.kind != "folder":
            return _own_path(name, self.dataset.files)
        assert self.folder is not None, "`check_folder` refuses it"
        path = Path(self.folder) / name
        if not path.is_file():
            problem = f"of dataset {self.dataset.name} is missing from the folder {self.folder}"
            raise ArtifactError(name, problem, folded(self.dataset.folder_hint or ""))
        return path


def _generated_pairs(pairs: Iterable[Any], turn: int, where: str, split: str) -> Iterator[RawPair]:
    """The pairs of a split. Raises DeclarationError, naming the generator (`where`), for what is no pair of lines."""
    for number, pair in enumerate(pairs, 1):
        place = f"pair {number:,} of {split}"
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(side, str) for side in pair)
        if not is_pair:
            raise DeclarationError(where, f"gives {short_repr(pair)} as {place}", "give two texts")
        first, second = (side.strip() for side in pair[::turn])
        if "\n" in first or "\n" in second:
            raise DeclarationError(where, f"gives {short_repr(pair)} as {place}", "give each text on one line")
        yield RawPair(first, second, ("", ""), number)


def _reported_lines(stream: IO[bytes], text: str) -> Iterator[str]:
    empty = True
    with reported(text):
        for line in decoded(stream, text):
            empty = False
            yield line
    if empty:
        raise ArtifactError(text, "is empty: it has no lines of text", "check the file")


def _own_path(name: str, files: Iterable[str]) -> Path:
    """Path of a file of the user's. Raises ArtifactError where it is not there; `files` are those of the dataset."""
    path = Path(name)
    if not path.is_file():
        similar = nearest(name, files)
        fix = "correct its path, which starts from the working directory"
        if any(path.parent.glob(f"{glob.escape(path.name)}!*")):
            fix += ", and write a ! of its name as !!"
        raise ArtifactError(
            name, "does not exist and is no file of the dataset", f"{fix}; did you mean {similar}?" if similar else fix
        )
    return path


def count_training_pairs(dataset: DatasetFiles, languages: tuple[str, str]) -> int | None:
    """Pairs of the user's own training texts, before any filter; None where they are elsewhere or cannot be read.

    Uncompressed lines are counted without decoding them; compressed ones, markup and other kinds of parts are read as
    `RawCorpus` does.
    """
    names = [text for part in dataset.train for text in part.names(languages[:1])]
    if dataset.kind != "files" or any(name in dataset.files or not Path(name).is_file() for name in names):
        return None
    are_lines = all(isinstance(part, TextPart) and part.markup == "none" for part in dataset.train)
    try:
        if are_lines and not any(map(_is_compressed, names)):
            return sum(map(count_lines, names))
        with RawCorpus(dataset, languages, Path) as corpus:
            return sum(1 for _ in corpus.parts_of("train"))
    except (ArtifactError, ConfigError):
        # The job that reads them reports the error.
        return None


def monolingual_lines(plan: Plan) -> int | None:
    """Lines of text of the source language: the recorded count, else that of the user's files, else the recipe's limit.

    None without any of these. Compressed files, files in archives, and translation memories are not counted.
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
    are_lines = not any(isinstance(part, MemoryPart) for part in plan.recipe.monolingual)
    if not names or not are_local or not are_lines or any(map(_is_compressed, names)):
        return limit
    lines = sum(map(count_lines, names))
    return min(lines, limit) if limit else lines


def _is_compressed(name: str) -> bool:
    with readable(name), open(name, "rb") as file:
        return compression(file.read(START)) is not None


def check_own_texts(plan: Plan) -> None:
    """Raises ArtifactError for a missing file of the user's that the dataset reads."""
    dataset = plan.loaded.dataset
    for path in plan.own_files():
        if not Path(path).is_file():
            hint = f": {dataset.folder_hint}" if dataset.folder_hint else ""
            fix = f"put it there, or change its path in dataset {dataset.name}{_relative(path)}"
            raise ArtifactError(path, f"{_problem(path)}{hint}", fix)


def check_named_files(files: Iterable[tuple[str, str]]) -> None:
    """Raises ConfigError for the first setting, of pairs of a setting and its path, whose file is missing."""
    for setting, path in files:
        if not Path(path).is_file():
            raise ConfigError(setting, path, problem=f"it {_problem(path)}", hint=f"change the path{_relative(path)}")


class _Encoded(Lenient):
    """The description of an encoded text, as far as it is read here."""

    longest: int = 0


def unreadable_texts(plan: Plan) -> list[str]:
    """Descriptions of encoded references with a sentence that some model of the plan cannot read, as where models had
    more positions when they were encoded. Encoding them again refuses the sentence."""
    longest = {split: plan.longest_encoded(RAW, split) for split in ("train", *plan.loaded.held_out)}
    allowed = {f"{plan.encoded(RAW, split)}.json": length for split, length in longest.items() if length is not None}
    return [file for file, length in allowed.items() if _longest_encoded(file) > length]


def _longest_encoded(summary: str) -> int:
    """Subwords of the longest sentence of an encoded text; 0 where it is not there, or does not say."""
    try:
        return read_file(_Encoded, summary).longest
    except ArtifactError:
        return 0


def _problem(path: str) -> str:
    return "is a folder" if Path(path).is_dir() else MISSING


def _relative(path: str) -> str:
    return "" if Path(path).is_absolute() else f", relative to {Path.cwd()}, where Snakemake would start"


def check_folder(dataset: DatasetFiles, folder: str | None) -> None:
    """Raises ConfigError, with the dataset's own hint, when the user's folder is not given or is not there."""
    hint = folded(dataset.folder_hint or "")
    if folder is None:
        problem = f"dataset {dataset.name} cannot be downloaded"
        raise ConfigError("recipe.folder", problem=problem, hint=f"name its folder ({hint})")
    if not Path(folder).is_dir():
        raise ConfigError("recipe.folder", str(folder), problem="it does not exist", hint=hint)


def aligned(
    left: Iterator[Line], right: Iterator[Other], left_name: str, right_name: str
) -> Iterator[tuple[Line, Other]]:
    """Pairs of lines (or segments). Raises ArtifactError with both names and counts when one text is longer."""
    for count, (a, b) in enumerate(itertools.zip_longest(left, right)):
        if a is None or b is None:
            longer = count + 1 + sum(1 for _ in (right if a is None else left))
            counts = (count, longer) if a is None else (longer, count)
            problem = f"has {counts[0]} lines, but {right_name} has {counts[1]}"
            raise ArtifactError(left_name, problem, "texts of one part must be aligned line by line")
        yield a, b
