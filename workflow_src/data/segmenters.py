"""Subword models of one language, or of both: escaped text to ids and back, by the two libraries."""

from __future__ import annotations

import io
from pathlib import Path

from workflow_src.data.escapes import BPE_SIGNS, RESERVED, Escape
from workflow_src.data.learn_subwords import JOINER, SPECIALS
from workflow_src.errors import ArtifactError
from workflow_src.spec import BOS, EOS, PAD, UNK

# A call of SentencePiece with several lines starts threads, which costs as much as this many lines.
ALONE = 8
# Words whose subwords subword-nmt keeps.
CACHED_WORDS = 200_000


class SentencePiece:
    """A SentencePiece model whose unknown characters are escaped."""

    def __init__(self, model: bytes, threads: int, reserved: frozenset[str]):
        import sentencepiece

        self.model = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.size = self.model.get_piece_size()
        self.threads = threads
        ordinary = (i for i in range(self.size) if not self.model.is_control(i) and not self.model.is_unknown(i))
        alphabet = (piece for piece in map(self.model.id_to_piece, ordinary) if len(piece) == 1)
        self.escape = Escape(alphabet, reserved=reserved)

    def encode(self, escaped: list[str]) -> list[list[int]]:
        if len(escaped) < ALONE:
            return [self.model.encode(line) for line in escaped]
        return self.model.encode(escaped, num_threads=self.threads)

    def decode(self, ids: list[list[int]]) -> list[str]:
        if len(ids) < ALONE:
            return [self.model.decode(sentence) for sentence in ids]
        return self.model.decode(ids, num_threads=self.threads)

    def pieces(self, ids: list[int]) -> list[str]:
        return [self.model.id_to_piece(i) for i in ids]


class SubwordNmt:
    """subword-nmt's BPE: `codes` as it learned them, `vocabulary` all pieces in the order of their ids."""

    def __init__(self, codes: str, vocabulary: list[str], reserved: frozenset[str]):
        from subword_nmt.apply_bpe import BPE

        # Given the number of merges, because it takes no merges for a damaged line.
        self.bpe = BPE(io.StringIO(codes, newline="\n"), codes.count("\n") - 1, JOINER)
        self.vocabulary = vocabulary
        self.size = len(vocabulary)
        self.ids = {piece: number for number, piece in enumerate(vocabulary)}
        alphabet = (p[0] for p in vocabulary if len(p) == 1 + len(JOINER) and p.endswith(JOINER))
        self.escape = Escape(alphabet, also=BPE_SIGNS, reserved=reserved)

    def encode(self, escaped: list[str]) -> list[list[int]]:
        return [self._ids(line) for line in escaped]

    def _ids(self, line: str) -> list[int]:
        # The library keeps every word that it has seen. Another thread may read the old cache.
        if len(self.bpe.cache) > CACHED_WORDS:
            self.bpe.cache = {}
        return [self.ids[piece] for piece in self.bpe.segment_tokens(line.split(" "))]

    def decode(self, ids: list[list[int]]) -> list[str]:
        return [self._text(sentence) for sentence in ids]

    def _text(self, ids: list[int]) -> str:
        pieces = (SPECIALS[UNK] if i == UNK else self.vocabulary[i] for i in ids if i not in (PAD, BOS, EOS))
        text = "".join(piece[: -len(JOINER)] if piece.endswith(JOINER) else piece + " " for piece in pieces)
        return text.removesuffix(" ")

    def pieces(self, ids: list[int]) -> list[str]:
        return [self.vocabulary[i] for i in ids]


Segmenter = SentencePiece | SubwordNmt


def read_segmenter(
    method: str, folder: Path, name: str, threads: int = 1, reserved: frozenset[str] = RESERVED
) -> Segmenter:
    """The model `name` of a folder: "joint", "source" or "target".

    Raises ArtifactError for damaged models.
    """
    if method == "subword-nmt":
        # Over a line that is no pair, the library ends the process.
        try:
            codes = (folder / f"{name}.codes").read_bytes().decode("utf-8")
            vocabulary = (folder / f"{name}.vocabulary").read_bytes().decode("utf-8")
            return SubwordNmt(codes, vocabulary.removesuffix("\n").split("\n"), reserved)
        except (UnicodeDecodeError, SystemExit):
            problem = f"and {name}.vocabulary are no subwords of subword-nmt"
            raise ArtifactError(folder / f"{name}.codes", problem, "copy or learn them again") from None
    path = folder / f"{name}.model"
    try:
        return SentencePiece(path.read_bytes(), threads, reserved)
    except RuntimeError as failure:
        raise ArtifactError(path, f"is no SentencePiece model ({failure})", "copy or learn it again") from None
