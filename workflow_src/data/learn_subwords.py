"""Learning subword models from text, and copying those of another recipe."""

from __future__ import annotations

import collections
import contextlib
import io
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from workflow_src.config.recipe import PlaceholderKind, SubwordsConfig
from workflow_src.config.sizes import AUTO
from workflow_src.data.escapes import BPE_SIGNS, NIBBLES, RESERVED, Escape
from workflow_src.data.lines import check_parallel, read_lines
from workflow_src.data.placeholders import SYMBOLS, Placeholders
from workflow_src.data.subwords import ENDINGS, FORMAT, JOINER, SPECIALS, Subwords, read_side
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.records.atomic import atomic, copy_file, fingerprint, sha256, write_json
from workflow_src.records.provenance import provenance
from workflow_src.spec import BOS, EOS, PAD, UNK

# SentencePiece's result depends on the number of threads, so that it cannot be the machine's.
SENTENCEPIECE_THREADS = 4
# Lines that SentencePiece learns from, of both languages; of more, every so many-th.
MOST_LINES = 10_000_000
# Bytes: longer than any line that normalisation lets pass.
LONGEST_LINE = 1 << 30
SETTING = "recipe.subwords.vocabulary_size"


def learn(
    settings: SubwordsConfig,
    source_file: str | Path,
    target_file: str | Path,
    folder: str | Path,
    threads: int = 1,
    placeholders: Sequence[PlaceholderKind] = (),
) -> Subwords:
    """Learn subwords from two line-aligned texts and write them to `folder`, subwords.json last.

    The result does not depend on the machine or on `threads`. `vocabulary_size` counts everything: specials, nibbles,
    characters and longer pieces; two vocabularies of that size each where they are not joint. Where it is auto, it
    follows from the number of lines, and is less where the text allows no more, and more where characters need it.

    With `placeholders`, kinds of spans, the models have symbols for these, and learn from the text without those that
    both sides have.

    Raises ValueError when a text is missing, empty, not UTF-8 or of another number of lines than the other, and when
    the vocabulary is larger than the text allows or too small for its characters.
    """
    lines = check_parallel(source_file, target_file)
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        read_from = [Path(source_file), Path(target_file)]
        if placeholders:
            read_from = _without_placeholders(read_from, Placeholders(placeholders), building / "texts")
        source, target = read_from
        texts = {"joint": [source, target]} if settings.joint else {"source": [source], "target": [target]}
        symbols = SYMBOLS if placeholders else ()
        sizes = {}
        for name, files in texts.items():
            for ending, content in _learned(settings, name, files, lines, symbols).items():
                with atomic(building / f"{name}.{ending}", "wb") as file:
                    file.write(content)
            sizes[name] = read_side(settings.method, building, name, threads).size
        shutil.rmtree(building / "texts", ignore_errors=True)
        description = _describe(settings, sizes, building, source_file, target_file, placeholders)
        # Models lie in place before subwords.json does; without it the folder counts as absent.
        folder.mkdir(exist_ok=True)
        (folder / "subwords.json").unlink(missing_ok=True)
        for old in (path for ending in ENDINGS for path in folder.glob(f"*.{ending}")):
            old.unlink()
        for name in description["files"]:
            os.replace(building / name, folder / name)
        write_json(folder / "subwords.json", description)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return Subwords.load(folder, threads)


def copy(
    settings: SubwordsConfig, placeholders: Sequence[PlaceholderKind], description: Path, folder: str | Path
) -> Subwords:
    """Copy the subwords that `description`, a subwords.json, is of to `folder`; weights trained with them fit.

    What `settings` state must be what the subwords were learned with; what they leave open follows the subwords.
    Raises ConfigError where a stated setting or `placeholders` differ.
    """
    own, folder = Subwords.load(description.parent), Path(folder)
    before = own.description
    learned_with = before["provenance"]["settings"]
    for name, value in settings.model_dump(mode="json", exclude_unset=True).items():
        if learned_with[name] != value:
            problem = f"{description} has another"
            raise ConfigError(f"recipe.subwords.{name}", value, problem=problem, allowed=[learned_with[name]])
    if list(placeholders) != before.get("placeholders", []):
        allowed = [before.get("placeholders", [])]
        raise ConfigError("recipe.placeholders", list(placeholders), problem="subwords have others", allowed=allowed)
    shutil.rmtree(folder, ignore_errors=True)
    for name in before["files"]:
        copy_file(description.parent / name, folder / name)
    block = provenance(learned_with, {"subwords": description}, before["files"])
    write_json(folder / "subwords.json", before | {"provenance": block})
    return Subwords.load(folder)


def _describe(
    settings: SubwordsConfig,
    sizes: dict[str, int],
    building: Path,
    source_file: str | Path,
    target_file: str | Path,
    placeholders: Sequence[PlaceholderKind],
) -> dict[str, Any]:
    files = {path.name: sha256(path) for path in sorted(building.iterdir())}
    more = {"placeholders": list(placeholders)} if placeholders else {}
    kind = {"format": FORMAT, "method": settings.method, "model": settings.model, "joint": settings.joint, **more}
    return {
        **kind,
        "files": files,
        "sizes": {side: sizes["joint" if settings.joint else side] for side in ("source", "target")},
        "specials": {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK},
        "digest": fingerprint({**kind, "files": files}),
        "provenance": provenance(
            settings.model_dump(mode="json") | more, {"source": source_file, "target": target_file}, files
        ),
    }


def _without_placeholders(texts: list[Path], placeholders: Placeholders, folder: Path) -> list[Path]:
    """Copies of two line-aligned texts in `folder`, without placeholders that both sides have."""
    copies = [folder / name for name in ("source", "target")]
    with atomic(copies[0]) as source_copy, atomic(copies[1]) as target_copy:
        for source, target in zip(*map(read_lines, texts), strict=True):
            symbols = placeholders.symbols(source, target)
            source_copy.write(placeholders.without(source, symbols) + "\n")
            target_copy.write(placeholders.without(target, symbols) + "\n")
    return copies


def _escaped_lines(files: list[Path], escape: Escape) -> Iterator[str]:
    for path in files:
        for line in read_lines(path):
            yield escape(line)


def _text(name: str) -> str:
    return "both texts together" if name == "joint" else f"the {name} text"


class _TooLarge(ConfigError):
    """The vocabulary is larger than a text allows: `limit` subwords."""

    def __init__(self, settings: SubwordsConfig, name: str, limit: int):
        super().__init__(SETTING, settings.vocabulary_size, problem=f"for {_text(name)}", allowed=f"{limit} or less")
        self.limit = limit


class _TooSmall(ConfigError):
    """The vocabulary is too small for a text's characters, which need `limit` subwords."""

    def __init__(self, settings: SubwordsConfig, name: str, limit: int):
        problem = f"for the characters of {_text(name)}"
        hint = "or lower recipe.subwords.character_coverage"
        super().__init__(SETTING, settings.vocabulary_size, problem=problem, allowed=f"{limit} or more", hint=hint)
        self.limit = limit


def _learned(
    settings: SubwordsConfig, name: str, files: list[Path], lines: int, symbols: Sequence[str]
) -> dict[str, bytes]:
    """The files of a model, by ending. A size that is auto is made to fit, any other that does not is an error."""

    def learn_model(settings: SubwordsConfig, name: str, files: list[Path]) -> dict[str, bytes]:
        learn_method = _learn_bpe if settings.method == "subword-nmt" else _learn_sentencepiece
        return learn_method(settings, name, files, symbols)

    if settings.vocabulary_size != AUTO:
        return learn_model(settings, name, files)
    settings = settings.sized(lines)
    try:
        return learn_model(settings, name, files)
    except _TooLarge as unfit:
        size = unfit.limit
    except _TooSmall as unfit:
        # Characters come first, and then as many longer subwords as another text gets in all.
        size = unfit.limit + settings.size
    try:
        return learn_model(settings.model_copy(update={"vocabulary_size": size}), name, files)
    except _TooLarge as unfit:
        return learn_model(settings.model_copy(update={"vocabulary_size": unfit.limit}), name, files)


def _no_words(files: list[Path]) -> ArtifactError:
    return ArtifactError(" and ".join(map(str, files)), "has no word to learn subwords from")


def _learn_sentencepiece(
    settings: SubwordsConfig, name: str, files: list[Path], symbols: Sequence[str]
) -> dict[str, bytes]:
    import sentencepiece

    lines: Iterable[str] = _escaped_lines(files, Escape(reserved=RESERVED | frozenset(symbols)))
    total = sum(1 for path in files for _ in read_lines(path))
    if total > MOST_LINES:
        lines = itertools.islice(lines, 0, None, -(-total // MOST_LINES))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
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
        message = str(failure)
        if limit := re.search(r"too high \(\d+\).*<= (\d+)", message):
            raise _TooLarge(settings, name, int(limit[1])) from None
        if limit := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
            raise _TooSmall(settings, name, int(limit[1])) from None
        if "!sentences_.empty()" in message:
            raise _no_words(files) from None
        raise
    return {"model": model.getvalue()}


def _learn_bpe(settings: SubwordsConfig, name: str, files: list[Path], symbols: Sequence[str]) -> dict[str, bytes]:
    """Codes and a vocabulary that is closed: every piece that applying the codes to any text can yield is in it.

    These are, with and without the sign for "the word goes on", the characters, nibbles and symbols, and the products
    of merges.
    """
    from subword_nmt.learn_bpe import learn_bpe

    words = collections.Counter(w for path in files for line in read_lines(path) for w in line.split(" ") if w)
    if not words:
        raise _no_words(files)
    reserved = RESERVED | frozenset(symbols)
    alphabet = _alphabet(words, settings.character_coverage, reserved)
    characters = [*alphabet, *NIBBLES, *symbols]
    base = [*SPECIALS, *(character + JOINER for character in characters), *characters]
    merges = settings.size - len(base)
    if merges < 0:
        raise _TooSmall(settings, name, len(base))
    escape = Escape(alphabet, also=BPE_SIGNS, reserved=reserved)
    # Sorted, so that ties cannot depend on the order of lines.
    counted = sorted((escape(word), count) for word, count in words.items())
    codes = io.StringIO(newline="\n")
    # It reports progress on stderr, and fails where a text has no pair left to merge: the codes so far are right.
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(ValueError):
        learn_bpe((f"{word} {count}\n" for word, count in counted), codes, merges, is_dict=True)
    pairs = [line.split(" ") for line in codes.getvalue().split("\n")[1:] if line]
    if len(pairs) < merges:
        raise _TooLarge(settings, name, len(base) + len(pairs))
    # Different pairs may have one product, so that the vocabulary can be a little smaller than its setting.
    vocabulary = base + list(dict.fromkeys(_product(left, right) for left, right in pairs))
    return {"codes": codes.getvalue().encode(), "vocabulary": ("\n".join(vocabulary) + "\n").encode()}


def _alphabet(words: collections.Counter[str], coverage: float, reserved: frozenset[str]) -> list[str]:
    """The characters that together make up the share `coverage` of the text, the most frequent ones, in code order."""
    counts: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    for character in reserved:
        counts.pop(character, None)
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
