"""Subword models: text to ids and back, without losing a character.

Two methods: SentencePiece (unigram or BPE) on plain text, and subword-nmt's BPE on words between spaces. Both give
`decode(encode(text)) == text` for text with single spaces between words: unknown characters are escaped (see
escapes.py). Ids 0 to 3 are PAD, BOS, EOS and UNK in every vocabulary; encoding never yields one of them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from workflow_src.config.preparation import SubwordsConfig
from workflow_src.config.recipe import PlaceholderKind
from workflow_src.data.escapes import NIBBLES, RESERVED, unescape
from workflow_src.data.learn_subwords import learn_model
from workflow_src.data.lines import check_parallel, zipped_lines
from workflow_src.data.placeholders import NUMBERS, SYMBOLS, Placeholders, restore
from workflow_src.data.repetitions import collapse
from workflow_src.data.segmenters import Segmenter, read_segmenter
from workflow_src.errors import MISSING, ArtifactError, ConfigError
from workflow_src.records.atomic import atomic, copy_file, fingerprint, read_json, sha256, write_json
from workflow_src.records.checked import Lenient, check_format, checked
from workflow_src.records.provenance import provenance
from workflow_src.spec import BOS, EOS, PAD, UNK

FORMAT = 1
LEARN_AGAIN = "learn subwords again"
# Endings of model files.
ENDINGS = ("model", "codes", "vocabulary")
_NIBBLES = frozenset(NIBBLES)
# Reserved characters of models with symbols for placeholders.
_RESERVED_WITH_SYMBOLS = RESERVED | frozenset(SYMBOLS)


class _Description(Lenient):
    """What a subwords.json has, beside its provenance."""

    method: Literal["sentencepiece", "subword-nmt"]
    joint: bool = Field(strict=True)
    files: dict[str, str]
    sizes: dict[Literal["source", "target"], int]
    digest: str
    placeholders: tuple[PlaceholderKind, ...] = ()

    @model_validator(mode="after")
    def _all_files(self):
        endings = ("codes", "vocabulary") if self.method == "subword-nmt" else ("model",)
        names = {f"{side}.{end}" for side in (("joint",) if self.joint else ("source", "target")) for end in endings}
        if self.files.keys() != names:
            raise ConfigError("files", sorted(self.files), allowed=names)
        return self


class Subwords:
    """The subword models of a recipe, as `learn` wrote them.

    Where the recipe has `placeholders`, spans such as URLs are symbols of the vocabulary in ids. Decoding takes their
    text from `sources`.
    """

    def __init__(self, source: Segmenter, target: Segmenter, description: dict[str, Any]):
        self._source = source
        self._target = target
        self.description = description
        kinds = description.get("placeholders")
        self.placeholders = Placeholders(kinds, source.escape.unknown, target.escape.unknown) if kinds else None

    @classmethod
    def load(cls, folder: str | Path, threads: int = 1) -> Subwords:
        """Read a folder with `subwords.json`; `threads` serve SentencePiece on many lines, and change no result.

        Raises ArtifactError naming the file that is missing, damaged or not the one described.
        """
        folder = Path(folder)
        description = read_json(folder / "subwords.json")
        check_format(description, FORMAT, str(folder / "subwords.json"), LEARN_AGAIN)
        checked(_Description, description, str(folder / "subwords.json"), LEARN_AGAIN)
        for name, expected in description["files"].items():
            path = folder / name
            if not path.is_file():
                raise ArtifactError(path, MISSING, "copy or learn it again")
            if sha256(path) != expected:
                raise ArtifactError(path, "is not the one that subwords.json describes", "learn it again")
        reserved = _RESERVED_WITH_SYMBOLS if description.get("placeholders") else RESERVED
        names = ["joint"] if description["joint"] else ["source", "target"]
        sides = [read_segmenter(description["method"], folder, name, threads, reserved) for name in names]
        sizes = {"source": sides[0].size, "target": sides[-1].size}
        if sizes != description["sizes"]:
            problem = f"has sizes {description['sizes']}, and the models have {sizes}"
            raise ArtifactError(folder / "subwords.json", problem, LEARN_AGAIN)
        return cls(sides[0], sides[-1], description)

    def reversed(self) -> Subwords:
        """The subwords of the other direction, in which the target is read."""
        return Subwords(self._target, self._source, self.description)

    @property
    def source_size(self) -> int:
        return self._source.size

    @property
    def target_size(self) -> int:
        return self._target.size

    @property
    def joint(self) -> bool:
        """True where both languages share one vocabulary."""
        return self.description["joint"]

    @property
    def digest(self) -> str:
        """Identifies the models: equal for equal ids of every text."""
        return self.description["digest"]

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of every line, without BOS and EOS. All placeholders are symbols, as far as there are symbols."""
        return self._encoded(self._source, lines, self._symbols(lines))

    def encode_target(self, lines: Sequence[str], sources: Sequence[str] | None = None) -> list[list[int]]:
        """Ids of every line. With their sources, placeholders that these have are symbols."""
        return self._encoded(self._target, lines, self._symbols(sources))

    def encode_pairs(self, sources: Sequence[str], targets: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        """Ids of both sides of training pairs. Placeholders that both sides have are symbols, others are text.

        With the kind unknown, some pairs have a further symbol (`Placeholders.training_pair`).
        """
        symbols = None
        if self.placeholders and sources:
            pairs = [self.placeholders.training_pair(*pair) for pair in zip(sources, targets, strict=True)]
            sources, targets, symbols = zip(*pairs, strict=True)
        sides = self._encoded(self._source, sources, symbols), self._encoded(self._target, targets, symbols)
        return list(zip(*sides, strict=True))

    def decode_source(self, ids: list[list[int]], sources: Sequence[str] | None = None) -> list[str]:
        """Text of every sentence of ids, whose placeholders are those of `sources`, or else `<1>`, `<2>`, ….

        Never fails on outputs of models.
        """
        return self._decoded(self._source, ids, sources)

    def decode_target(self, ids: list[list[int]], sources: Sequence[str] | None = None) -> list[str]:
        """Text of every sentence of target ids, as `decode_source`; `sources` are lines that it is translated from.

        Symbols that a source has no placeholder for are dropped.
        """
        return self._decoded(self._target, ids, sources)

    def placeholder_outcomes(self, ids: list[list[int]], sources: Sequence[str]) -> list[dict[str, int]] | None:
        """`Placeholders.outcomes` of each source and its translation; None without placeholders."""
        if self.placeholders is None:
            return None
        texts = self._target.decode([_in_vocabulary(self._target, sentence) for sentence in ids])
        return [self.placeholders.outcomes(text, source) for text, source in zip(texts, sources, strict=True)]

    def unknown_source(self, line: str) -> list[str]:
        """The characters of a source line that are outside of the vocabulary, each as often as it is there."""
        return self._source.escape.unknown.findall(line)

    def _symbols(self, sources: Sequence[str] | None) -> list[dict[str, str]] | None:
        """Symbols of the placeholders of every source; None where there are none to replace."""
        if self.placeholders is None or sources is None:
            return None
        return [self.placeholders.symbols(line) for line in sources]

    def _encoded(
        self, side: Segmenter, lines: Sequence[str], symbols: Sequence[Mapping[str, str]] | None
    ) -> list[list[int]]:
        if self.placeholders is None or symbols is None:
            return side.encode([side.escape(line) for line in lines])
        finder = self.placeholders if side is self._source else self.placeholders.target
        replaced = zip(lines, symbols, strict=True)
        return side.encode([finder.replace(line, mapping, side.escape) for line, mapping in replaced])

    def _decoded(self, side: Segmenter, ids: list[list[int]], sources: Sequence[str] | None) -> list[str]:
        texts = side.decode([_in_vocabulary(side, sentence) for sentence in ids])
        if self.placeholders is None:
            return [unescape(text) for text in texts]
        symbols = [NUMBERS] * len(texts) if sources is None else map(self.placeholders.symbols, sources)
        return [restore(text, mapping, unescape) for text, mapping in zip(texts, symbols, strict=True)]

    def names(self) -> dict[str, list[str]]:
        """The pieces of all ids in their order, {"source": …, "target": …}."""
        sides = {"source": self._source, "target": self._target}
        return {name: side.pieces(list(range(side.size))) for name, side in sides.items()}

    def pieces_target(self, ids: list[int]) -> list[str]:
        """The pieces as the model names them, to show."""
        return self._target.pieces(_in_vocabulary(self._target, ids))

    def pieces_source(self, ids: list[int]) -> list[str]:
        return self._source.pieces(ids)

    def without_repetitions(self, ids: list[list[int]]) -> list[list[int]]:
        """Every target sentence of ids with runs of the same subword reduced to one, to be joined afterwards.

        Pieces that spell an unknown character stay: two equal ones may be the two halves of a byte. Symbols of
        placeholders stay too: a source may have one twice in a row.
        """
        return [collapse(_in_vocabulary(self._target, sentence), keep=self._repeatable) for sentence in ids]

    @cached_property
    def _repeatable(self) -> frozenset[int]:
        """Ids of target pieces that hold nibbles or symbols of placeholders."""
        signs = _NIBBLES.union(SYMBOLS) if self.placeholders else _NIBBLES
        pieces = self._target.pieces(list(range(self._target.size)))
        return frozenset(number for number, piece in enumerate(pieces) if not signs.isdisjoint(piece))


def _in_vocabulary(side: Segmenter, ids: list[int]) -> list[int]:
    """Ids of subwords, without symbols that a family adds to the vocabulary, which have no text."""
    return [i for i in ids if i < side.size]


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

    Raises InputError when a text is missing, empty, not UTF-8 or of another number of lines than the other, and when
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
            for ending, content in learn_model(settings, name, files, lines, symbols).items():
                with atomic(building / f"{name}.{ending}", "wb") as file:
                    file.write(content)
            sizes[name] = read_segmenter(settings.method, building, name, threads).size
        shutil.rmtree(building / "texts", ignore_errors=True)
        description = _describe(settings, sizes, building, source_file, target_file, placeholders)
        # Models lie in place before subwords.json does; without it the folder counts as absent.
        _remove_models(folder)
        for name in description["files"]:
            os.replace(building / name, folder / name)
        write_json(folder / "subwords.json", description)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return Subwords.load(folder, threads)


def copy(
    settings: SubwordsConfig, placeholders: Sequence[PlaceholderKind], description: Path, folder: str | Path
) -> Subwords:
    """Copy the subwords that `description`, a subwords.json, describes to `folder`; weights trained with them fit.

    Stated `settings` and `placeholders` must be those that the subwords were learned with, else ConfigError is raised;
    other settings follow the subwords.
    """
    original, folder = Subwords.load(description.parent), Path(folder)
    content = original.description
    learned_with = content["provenance"]["settings"]
    for name, value in settings.model_dump(mode="json", exclude_unset=True).items():
        if learned_with[name] != value:
            problem = f"{description} has another"
            raise ConfigError(f"recipe.subwords.{name}", value, problem=problem, allowed=[learned_with[name]])
    if list(placeholders) != content.get("placeholders", []):
        allowed = [content.get("placeholders", [])]
        raise ConfigError("recipe.placeholders", list(placeholders), problem="subwords have others", allowed=allowed)
    _remove_models(folder)
    for name in content["files"]:
        copy_file(description.parent / name, folder / name)
    block = provenance(learned_with, {"subwords": description}, content["files"])
    write_json(folder / "subwords.json", content | {"provenance": block})
    return Subwords.load(folder)


def _remove_models(folder: Path) -> None:
    """Remove an older subwords.json and models from a folder, and nothing else of it; create it if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "subwords.json").unlink(missing_ok=True)
    for path in (path for ending in ENDINGS for path in folder.glob(f"*.{ending}")):
        path.unlink()


def _describe(
    settings: SubwordsConfig,
    sizes: dict[str, int],
    building: Path,
    source_file: str | Path,
    target_file: str | Path,
    placeholders: Sequence[PlaceholderKind],
) -> dict[str, Any]:
    files = {path.name: sha256(path) for path in sorted(building.iterdir())}
    kinds = {"placeholders": list(placeholders)} if placeholders else {}
    kind = {"format": FORMAT, "method": settings.method, "model": settings.model, "joint": settings.joint, **kinds}
    return {
        **kind,
        "files": files,
        "sizes": {side: sizes["joint" if settings.joint else side] for side in ("source", "target")},
        "specials": {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK},
        "digest": fingerprint({**kind, "files": files}),
        "provenance": provenance(
            settings.model_dump(mode="json") | kinds, {"source": source_file, "target": target_file}, files
        ),
    }


def _without_placeholders(texts: list[Path], placeholders: Placeholders, folder: Path) -> list[Path]:
    """Copies of two line-aligned texts in `folder`, without placeholders that both sides have."""
    copies = [folder / name for name in ("source", "target")]
    with atomic(copies[0]) as source_copy, atomic(copies[1]) as target_copy:
        for source, target in zipped_lines(*texts):
            symbols = placeholders.symbols(source, target)
            source_copy.write(placeholders.without(source, symbols) + "\n")
            target_copy.write(placeholders.without(target, symbols) + "\n")
    return copies
