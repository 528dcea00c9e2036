"""Learning a subword model from text."""

from __future__ import annotations

import collections
import contextlib
import io
import itertools
import logging
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from workflow_src.config.preparation import SubwordsConfig
from workflow_src.config.sizes import AUTO
from workflow_src.data.escapes import BPE_SIGNS, NIBBLES, RESERVED, Escape
from workflow_src.data.lines import read_lines
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.spec import BOS, EOS, PAD, UNK

log = logging.getLogger("continuum")
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
# Ends a piece of subword-nmt that is not the last one of its word.
JOINER = "@@"
# Fixed, because SentencePiece's result depends on the number of threads.
SENTENCEPIECE_THREADS = 4
# Lines that SentencePiece learns from, of both languages; of more, every so many-th. More lines take hours, and change
# few of the subwords.
MOST_LINES = 2_000_000
# Characters that SentencePiece learns from at once: its time grows with the square of a repetitive line.
LONGEST_PIECE = 4000
# Bytes: longer than any line that normalisation lets pass.
LONGEST_LINE = 1 << 30
SETTING = "recipe.subwords.vocabulary_size"


def _text(name: str) -> str:
    return "both texts together" if name == "joint" else f"the {name} text"


class _TooLarge(ConfigError):
    """The vocabulary is larger than a text allows: `limit` subwords."""

    def __init__(self, settings: SubwordsConfig, name: str, limit: int):
        super().__init__(SETTING, settings.vocabulary_size, problem=f"for {_text(name)}", allowed=f"{limit} or less")
        self.limit = limit


def _too_small(settings: SubwordsConfig, name: str, limit: int) -> ConfigError:
    problem = f"for the characters of {_text(name)}"
    hint = "or lower recipe.subwords.character_coverage"
    return ConfigError(SETTING, settings.vocabulary_size, problem=problem, allowed=f"{limit} or more", hint=hint)


def learn_model(
    settings: SubwordsConfig, name: str, files: list[Path], lines: int, symbols: Sequence[str]
) -> dict[str, bytes]:
    """The files of a model, by ending, from texts of `lines` lines each.

    The size auto is fitted to the text; a number that does not fit is an error.
    """

    def learn(settings: SubwordsConfig) -> dict[str, bytes]:
        if settings.method == "subword-nmt":
            return _learn_bpe(settings, name, files, symbols)
        return _learn_sentencepiece(settings, name, files, lines, symbols)

    if settings.vocabulary_size != AUTO:
        return learn(settings)
    settings = settings.sized(lines, character_count(_sample(files, lines), settings.character_coverage))
    try:
        return learn(settings)
    except _TooLarge as unfit:
        return learn(settings.model_copy(update={"vocabulary_size": unfit.limit}))


def character_count(lines: Iterable[str], coverage: float) -> int:
    """Distinct characters of lines, without the space, that a vocabulary of this coverage has."""
    counts = collections.Counter[str]()
    for line in lines:
        counts.update(line)
    del counts[" "]
    return len(_alphabet(counts, coverage, frozenset()))


def _stride(files: list[Path], lines: int) -> int:
    """Of texts of `lines` lines each, every so many-th line is learned from."""
    return max(1, -(-lines * len(files) // MOST_LINES))


def _sample(files: list[Path], lines: int) -> Iterator[str]:
    """The lines that are learned from, evenly spread."""
    return itertools.islice(itertools.chain.from_iterable(map(read_lines, files)), 0, None, _stride(files, lines))


def _no_words(files: list[Path]) -> ArtifactError:
    return ArtifactError(" and ".join(map(str, files)), "has no word to learn subwords from")


def _pieces(line: str) -> list[str]:
    """A line, or pieces of a long one, which end at spaces where it has some."""
    if len(line) <= LONGEST_PIECE:
        return [line]
    return textwrap.wrap(line, LONGEST_PIECE, expand_tabs=False, replace_whitespace=False, break_on_hyphens=False)


def _learn_sentencepiece(
    settings: SubwordsConfig, name: str, files: list[Path], lines: int, symbols: Sequence[str]
) -> dict[str, bytes]:
    import sentencepiece

    total, every = lines * len(files), _stride(files, lines)
    learned_from = _sample(files, lines)
    if every > 1:
        log.info("subwords are learned from %s of %s lines, evenly spread", f"{-(-total // every):,}", f"{total:,}")
    escape, model = Escape(reserved=RESERVED | frozenset(symbols)), io.BytesIO()
    failures: list[ArtifactError] = []

    def escaped_lines() -> Iterator[str]:
        try:
            for line in learned_from:
                yield from map(escape, _pieces(line))
        except ArtifactError as failure:
            # The library raises an error of its own in its place.
            failures.append(failure)
            raise

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=escaped_lines(),
            model_writer=model,
            model_type=settings.model,
            vocab_size=settings.vocabulary_size,
            character_coverage=settings.character_coverage,
            # By default, lines of more than a few thousand bytes are left out without a warning.
            max_sentence_length=LONGEST_LINE,
            # Text comes normalised; changes here could not be undone.
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            user_defined_symbols=[*NIBBLES, *symbols],
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            num_threads=SENTENCEPIECE_THREADS,
            minloglevel=2,
        )
    except RuntimeError as failure:
        if failures:
            raise failures[0] from None
        message = str(failure)
        if limit := re.search(r"too high \(\d+\).*<= (\d+)", message):
            raise _TooLarge(settings, name, int(limit[1])) from None
        if limit := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
            raise _too_small(settings, name, int(limit[1])) from None
        if "!sentences_.empty()" in message:
            raise _no_words(files) from None
        raise
    return {"model": model.getvalue()}


def _learn_bpe(settings: SubwordsConfig, name: str, files: list[Path], symbols: Sequence[str]) -> dict[str, bytes]:
    """Codes and a vocabulary that is closed: every piece that applying the codes to any text can yield is in it.

    These are the characters, nibbles and symbols, each with and without JOINER, and the products of merges.
    """
    from subword_nmt.learn_bpe import learn_bpe

    words = collections.Counter(w for path in files for line in read_lines(path) for w in line.split(" ") if w)
    if not words:
        raise _no_words(files)
    reserved = RESERVED | frozenset(symbols)
    counts = collections.Counter[str]()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    alphabet = _alphabet(counts, settings.character_coverage, reserved)
    characters = [*alphabet, *NIBBLES, *symbols]
    base = [*SPECIALS, *(character + JOINER for character in characters), *characters]
    merges = settings.size - len(base)
    if merges < 0:
        raise _too_small(settings, name, len(base))
    escape = Escape(alphabet, also=BPE_SIGNS, reserved=reserved)
    # Sorted, so that ties cannot depend on the order of lines.
    counted = sorted((escape(word), count) for word, count in words.items())
    codes = io.StringIO(newline="\n")
    # `learn_bpe` reports progress on stderr, and fails where a text has no pair left: the codes so far are right.
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(ValueError):
        learn_bpe((f"{word} {count}\n" for word, count in counted), codes, merges, is_dict=True)
    version, *learned = codes.getvalue().removesuffix("\n").split("\n")
    if len(learned) < merges:
        raise _TooLarge(settings, name, len(base) + len(learned))
    # A word such as <unk> stays in two pieces: one piece would have the name of a special.
    kept = {line: product for line in learned if (product := _product(*line.split(" "))) not in SPECIALS}
    # So, and because different pairs may have one product, the vocabulary can be a little smaller than its setting.
    vocabulary = base + list(dict.fromkeys(kept.values()))
    contents = {"codes": [version, *kept], "vocabulary": vocabulary}
    return {ending: ("\n".join(lines) + "\n").encode() for ending, lines in contents.items()}


def _alphabet(counts: Mapping[str, int], coverage: float, reserved: frozenset[str]) -> list[str]:
    """The characters that together make up the share `coverage` of the text, the most frequent ones, in code order.

    `counts` are those of all characters.
    """
    counts = {character: count for character, count in counts.items() if character not in reserved}
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    total, covered, chosen = sum(counts.values()), 0, []
    for character, count in ranked:
        if covered >= coverage * total:
            break
        chosen.append(character)
        covered += count
    return sorted(chosen)


def _product(left: str, right: str) -> str:
    """The piece that merging two of subword-nmt's symbols gives; `</w>` ends the last symbol of a word."""
    merged = left + right
    return merged.removesuffix("</w>") if merged.endswith("</w>") else merged + JOINER
