"""Lines of text as the subwords that a model reads, and its outputs as text again."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from workflow_src.config.experiment import Removal
from workflow_src.data.normalise import Normaliser
from workflow_src.data.placeholders import numbered
from workflow_src.data.repetitions import collapse_repetitions
from workflow_src.data.subwords import Subwords
from workflow_src.engines.session import Request
from workflow_src.errors import ConfigError, short_repr
from workflow_src.serving.arguments import check_removal
from workflow_src.serving.bundle import Description
from workflow_src.serving.sentences import MARKS, Part, cut_long, gaps, split_lines, whole_lines
from workflow_src.serving.translations import Hypothesis, Translation, distinct, of_lines
from workflow_src.types import EOS, Ranked

log = logging.getLogger("continuum")


@dataclasses.dataclass(frozen=True)
class Sources:
    """Parts of lines that the model can take, their normalised texts, and the subwords of these."""

    parts: list[Part]
    texts: list[str]
    ids: list[list[int]]


class TextProcessor:
    """Normalisation, sentences, subwords and placeholders of both sides of a system.

    `reader` encodes sources: the subwords, or a model that was made elsewhere and reads subwords of its own.
    """

    def __init__(self, description: Description, subwords: Subwords, reader: Any):
        self.languages = description.languages
        self.subwords = subwords
        self.reader = reader
        self._source, self._target = normalisers(description, subwords)
        self._of_thread = threading.local()

    @property
    def timings(self) -> dict[str, float]:
        """Seconds that the last call of this thread spent on subwords: {"encode", "decode"}."""
        return self._of_thread.__dict__.setdefault("timings", {"encode": 0.0, "decode": 0.0})

    def normalised(self, lines: list[str], request: Request) -> list[str]:
        """The lines, normalised unless they already are."""
        return lines if request.normalised else [self._source.line(line) for line in lines]

    def encoded(self, texts: list[str]) -> list[list[int]]:
        """Ids of the source subwords of normalised texts, as the model reads them, without end symbols."""
        return self.reader.encode_source(texts)

    def whole(self, lines: list[str], request: Request, first_line: int) -> Sources:
        """Each line as one part, of any length."""
        with self._timed(lines, first_line):
            texts = self.normalised(lines, request)
            return Sources(whole_lines(lines), texts, self.encoded(texts))

    def split(
        self, lines: list[str], request: Request, longest: int, seen: int | None, place: str, first_line: int
    ) -> Sources:
        """Parts of at most `longest` subwords. Warnings begin with `place`, and count lines from `first_line`.

        `seen`: subwords of the longest source that the system was trained on, if known.
        """

        def read(parts: list[Part]) -> Sources:
            texts = self.normalised([part.text for part in parts], request)
            return Sources(parts, texts, self.encoded(texts))

        def size(text: str) -> int:
            return len(self.encoded(self.normalised([text], request))[0])

        with self._timed(lines, first_line):
            sources = read(split_lines(lines, self.languages.source) if request.splits else whole_lines(lines))
            lengths = list(map(len, sources.ids))
            if max(lengths, default=0) > longest:
                sources = read(cut_long(sources.parts, lengths, longest, size, place, first_line))
        if seen is not None:
            _warn_of_unseen_lengths(sources, seen, place, first_line)
        return sources

    @contextlib.contextmanager
    def _timed(self, lines: Sequence[str], first_line: int) -> Iterator[None]:
        """Measures the time of reading. Replaces the error of a lone surrogate, which UTF-8 cannot encode, by one
        sentence with the number of its line."""
        began = time.perf_counter()
        try:
            yield
        except UnicodeEncodeError as failure:
            broken = (number for number, line in enumerate(lines, first_line) if any(map(_is_half, line)))
            number = next(broken, first_line)
            problem = f"line {number} has half of a character, {short_repr(failure.object[failure.start])}"
            raise ConfigError("lines", problem=problem, hint="read them as UTF-8") from None
        self.timings.update(encode=time.perf_counter() - began, decode=0.0)

    def source_text(self, line: str) -> str:
        """A normalised source line, detokenised as outputs are, for display."""
        return self._source.detokenise(line)

    def text(
        self, tokens: list[list[int]], remove_repetitions: Removal = "none", sources: Sequence[str] | None = None
    ) -> list[str]:
        """See `Translator.text`."""
        check_removal(remove_repetitions)
        began = time.perf_counter()
        if remove_repetitions == "subwords":
            tokens = self.subwords.without_repetitions(tokens)
        # A model may spell a line break, character by character; a line must stay a line.
        texts = (" ".join(text.split()) for text in self.subwords.decode_target(tokens, sources))
        lines = [self._target.detokenise(text) for text in texts]
        if remove_repetitions == "words":
            lines = [collapse_repetitions(line) for line in lines]
        self.timings["decode"] += time.perf_counter() - began
        return lines

    def restores(self, request: Request) -> bool:
        """Whether placeholders of outputs become the text of their sources."""
        return request.placeholders and self.subwords.placeholders is not None

    def translations(
        self,
        sources: Sources,
        best: list[list[int]],
        ranked: Sequence[Ranked],
        origins: Sequence[Sequence[Sequence[int]]] | None,
        request: Request,
        removal: Removal,
    ) -> list[Translation]:
        """The translations of lines from the outputs of their parts: the best ones, and all hypotheses, `ranked`, with
        the source positions of their subwords."""
        placeholder_sources = None
        if self.restores(request):
            placeholder_sources = [text for text, entries in zip(sources.texts, ranked, strict=True) for _ in entries]
        outputs = [tokens for entries in ranked for _, tokens in entries]
        texts = iter(self.text(outputs, removal, placeholder_sources))
        outcomes = self.subwords.placeholder_outcomes(best, sources.texts) or [{}] * len(ranked)
        sentences = []
        for number, (source, source_text, entries) in enumerate(zip(sources.ids, sources.texts, ranked, strict=True)):
            hypotheses = []
            for place, (score, tokens) in enumerate(entries):
                pieces = self._numbered(self.subwords.pieces_target(tokens)) if request.details else ()
                positions = None if origins is None else tuple(origins[number][place])
                hypotheses.append(Hypothesis(next(texts), score, tuple(pieces), positions))
            unknown, lost = self.reader.unknown_source(source_text), []
            if unknown:
                # Marks of sentences are those of each language.
                words = Counter(character for character in unknown if character not in MARKS)
                lost = list((words - Counter(hypotheses[0].text)).elements())
            pieces = self._numbered(self.reader.pieces_source([*source, EOS])) if request.details else ()
            different = tuple(distinct(hypotheses))
            sentences.append(Translation(different, tuple(pieces), tuple(unknown), tuple(lost), outcomes[number]))
        spaces = gaps(sources.parts, self.languages.source, self.languages.target)
        return of_lines(sentences, sources.parts, spaces, request.n_best or 1)

    def _numbered(self, pieces: list[str]) -> Sequence[str]:
        """Subwords with numbers in place of symbols, which only recipes with placeholders have."""
        return pieces if self.subwords.placeholders is None else numbered(pieces)


def _warn_of_unseen_lengths(sources: Sources, seen: int, place: str, first_line: int) -> None:
    """Log a warning for sentences that are longer than all that training saw."""
    longer = [(part, ids) for part, ids in zip(sources.parts, sources.ids, strict=True) if len(ids) > seen]
    if longer:
        part, ids = longer[0]
        log.warning(
            "warning: %sline %d has a sentence of %d subwords%s, and training saw at most %d; expect worse "
            "translations, or split it",
            place,
            first_line + part.line,
            len(ids),
            f", the first of {len(longer):,} such sentences" if len(longer) > 1 else "",
            seen,
        )


def normalisers(description: Description, subwords: Subwords) -> tuple[Normaliser, Normaliser]:
    """Those of sources and of targets."""
    kinds = subwords.placeholders.kinds if subwords.placeholders else ()
    languages = description.languages
    source = Normaliser(description.normalisation, languages.source, kinds)
    return source, Normaliser(description.normalisation, languages.target, kinds)


def _is_half(character: str) -> bool:
    """Whether it is a surrogate, which no text in UTF-8 has."""
    return "\ud800" <= character <= "\udfff"
