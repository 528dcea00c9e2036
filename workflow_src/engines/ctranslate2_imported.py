"""A CTranslate2 model that was made elsewhere, as a network over the subwords of a recipe.

Outputs are ids of the recipe's subwords, as for all systems of the recipe. Sources are detokenised and encoded in the
model's own subwords; the text of its outputs is normalised as targets of the corpus are.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from workflow_src.data.lines import read_lines
from workflow_src.engines.ctranslate2 import COMPUTE_TYPES, Affixes, CTranslate2Session, device_and_index
from workflow_src.engines.session import Request, Session, SessionConfig
from workflow_src.errors import ArtifactError, ConfigError, readable
from workflow_src.families.ctranslate2 import (
    ENDINGS,
    MODEL_FILES,
    SEPARATE,
    SHARED,
    SOURCE_SUBWORDS,
    TARGET_SUBWORDS,
    CTranslate2Config,
)
from workflow_src.records.atomic import read_json
from workflow_src.records.checked import Lenient, checked
from workflow_src.types import EOS, PAD, Hypotheses, Ranked

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

# Scores are computed for so many sentence pairs at once.
PAIRS = 64
CONVERT_AGAIN = "convert the model again"


class _Config(Lenient):
    """What is read of a model's config.json: special tokens, and whether the library adds some to sources."""

    eos_token: str | None = "</s>"
    unk_token: str | None = "<unk>"
    add_source_bos: bool = False
    add_source_eos: bool = False


class Pieces:
    """The vocabularies and SentencePiece models of a model made elsewhere; ids are indices in its vocabularies."""

    def __init__(self, folder: Path, settings: CTranslate2Config):
        """Raises ArtifactError for a file that cannot be read, ConfigError for a token that no vocabulary has."""
        path = folder / MODEL_FILES[1]
        config = checked(_Config, read_json(path), str(path), CONVERT_AGAIN)
        self.end, self.unknown = config.eos_token, config.unk_token or ""
        self.adds = config.add_source_bos + config.add_source_eos
        shared = _vocabulary(folder, SHARED)
        source, target = (shared or _vocabulary(folder, name) for name in SEPARATE)
        if not source or not target:
            raise ArtifactError(folder, "has no vocabulary", f"{CONVERT_AGAIN}: it writes {SHARED}.json")
        self.names = {"source": source, "target": target}
        self._ids = {
            side: {piece: number for number, piece in enumerate(pieces)} for side, pieces in self.names.items()
        }
        self._models = {"source": _model(folder / SOURCE_SUBWORDS), "target": _model(folder / TARGET_SUBWORDS)}
        self.affixes = Affixes(settings.source_prefix, settings.source_suffix, settings.target_prefix, self.end)
        for side, setting in (("source", "source_prefix"), ("source", "source_suffix"), ("target", "target_prefix")):
            for token in getattr(settings, setting):
                if token not in self._ids[side]:
                    problem = f"the {side} vocabulary of {settings.folder} has no such token"
                    raise ConfigError(f"model.{setting}", token, problem=problem, hint="look it up there")
        for side in self.names:
            self._check(folder, side)

    def _check(self, folder: Path, side: str) -> None:
        """Raises ArtifactError where a SentencePiece model and a vocabulary are of two models."""
        model, ids = self._models[side], self._ids[side]
        shared_pieces = sum(model.id_to_piece(i) in ids for i in range(model.get_piece_size()))
        if 2 * shared_pieces < model.get_piece_size():
            raise ArtifactError(
                folder / (SOURCE_SUBWORDS if side == "source" else TARGET_SUBWORDS),
                f"has {model.get_piece_size()} subwords, of which the {side} vocabulary knows {shared_pieces}",
                "name the SentencePiece model that the model was trained with",
            )

    def encode(self, lines: list[str], side: str) -> list[list[int]]:
        """Ids of every line, without affixes."""
        ids = self._ids[side]
        unknown = ids.get(self.unknown, 0)
        return [[ids.get(piece, unknown) for piece in pieces] for pieces in self._models[side].encode_as_pieces(lines)]

    def decode(self, sentences: list[list[int]]) -> list[str]:
        """Text of outputs."""
        names = self.names["target"]
        return [self._models["target"].decode_pieces([names[i] for i in ids]) for ids in sentences]


def _vocabulary(folder: Path, name: str) -> list[str] | None:
    for ending in ENDINGS:
        path = folder / f"{name}{ending}"
        if not path.is_file():
            continue
        if ending == ".txt":
            return list(read_lines(path))
        tokens = read_json(path)
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise ArtifactError(path, "is no list of tokens", CONVERT_AGAIN)
        return tokens
    return None


def _model(path: Path) -> SentencePieceProcessor:
    import sentencepiece

    with readable(path):
        content = path.read_bytes()
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=content)
    except RuntimeError as failure:
        raise ArtifactError(path, f"is no SentencePiece model ({failure})", "name that of the model") from None


class Source(list[int]):
    """The model's own subwords of a line, and the line itself, from which outputs take their placeholders."""

    def __init__(self, ids: Sequence[int], line: str):
        super().__init__(ids)
        self.line = line


class ImportedModel(nn.Module):
    """A model that translates and scores in ids of `subwords`. It also reads sources as `Subwords` does, in subwords of
    its own."""

    def __init__(self, library: CTranslate2Session, pieces: Pieces, config: SessionConfig):
        super().__init__()
        assert config.subwords and config.source and config.target, "folders have subwords and normalisers"
        self.library = library
        self.pieces = pieces
        self.subwords = config.subwords
        self.source, self.target = config.source, config.target
        # Its positions hold subwords of its own: `longest_source` counts them.
        self.config = types.SimpleNamespace(max_positions=2**31)

    def encode_source(self, lines: list[str]) -> list[Source]:
        """The model's own subwords of normalised lines of the source."""
        encoded = self.pieces.encode([self.source.detokenise(line) for line in lines], "source")
        return [Source(ids, line) for ids, line in zip(encoded, lines, strict=True)]

    def unknown_source(self, _line: str) -> list[str]:
        """None: the model has a vocabulary of its own, of which no alphabet is known."""
        return []

    def pieces_source(self, source: Sequence[int]) -> list[str]:
        """Source subwords with their affixes, without the end symbol, which the library adds by itself."""
        return self.library.source_words(source[:-1])

    @property
    def target_size(self) -> int:
        return len(self.pieces.names["target"])

    @property
    def longest_source(self) -> int:
        """Length of the longest source, in the model's own subwords."""
        affixes = self.pieces.affixes
        return self.library.max_positions - len(affixes.source_prefix) - len(affixes.source_suffix) - self.pieces.adds

    def search(self, sources: Sequence[Sequence[int]], request: Request) -> Hypotheses:
        """Outputs in ids of the recipe's subwords, with scores over the model's own."""
        hypotheses = self.library.compute(sources, request)
        lines = [source.line if isinstance(source, Source) else "" for source in sources]
        tokens = self._targets(hypotheses.tokens, lines)
        if not request.ranked:
            return Hypotheses(tokens, hypotheses.scores, hypotheses.steps)
        assert hypotheses.ranked is not None, "the library gives all hypotheses"
        by_sentence = hypotheses.ranked()
        outputs = iter(
            self._targets(
                [ids for entries in by_sentence for _, ids in entries],
                [line for line, entries in zip(lines, by_sentence, strict=True) for _ in entries],
            )
        )
        ranked_targets: list[Ranked] = [[(score, next(outputs)) for score, _ in entries] for entries in by_sentence]
        return Hypotheses(tokens, hypotheses.scores, hypotheses.steps, ranked=lambda: ranked_targets)

    def _targets(self, outputs: list[list[int]], lines: list[str]) -> list[list[int]]:
        """Ids of outputs in the recipe's subwords, with the placeholders of their source lines."""
        texts = [self.target.line(text) for text in self.pieces.decode(outputs)]
        return self.subwords.encode_target(texts, lines)

    def scoring_states(self, source: Tensor) -> _Sources:
        """Source (B, S) in the model's own subwords. Raises InputError for ids with placeholders, whose text is
        missing."""
        return _Sources(self.encode_source(self.subwords.decode_source([_ids(row) for row in source.tolist()])))

    def log_probability(self, states: _Sources, target: Tensor) -> Tensor:
        """log p(y|x) of the text of target (B, T) and its end, (B,); -inf where either is too long."""
        lines = self.subwords.decode_target([_ids(row) for row in target.tolist()])
        outputs = self.pieces.encode([self.target.detokenise(line) for line in lines], "target")
        longest = self.library.max_positions - 1 - len(self.pieces.affixes.target_prefix)
        fits = [
            i
            for i, (source, output) in enumerate(zip(states.sources, outputs, strict=True))
            if len(source) <= self.longest_source and len(output) <= longest
        ]
        scores = torch.full((target.size(0),), float("-inf"), device=target.device)
        totals = self.library.score([states.sources[i] for i in fits], [outputs[i] for i in fits], PAIRS)
        scores[fits] = torch.tensor(totals, device=target.device)
        return scores


class _Sources:
    """Sources that outputs are scored under."""

    def __init__(self, sources: Sequence[list[int]]):
        self.sources = sources

    def select(self, rows: Tensor) -> _Sources:
        return _Sources([self.sources[i] for i in rows.tolist()])


def _ids(row: list[int]) -> list[int]:
    return [i for i in row if i not in (PAD, EOS)]


class ImportedSession(Session):
    """A model that was made elsewhere, over the subwords of a recipe.

    Ids of sources are those of the model's own subwords, ids of outputs those of the recipe.
    """

    network: ImportedModel

    def __init__(self, library: CTranslate2Session, pieces: Pieces, config: SessionConfig):
        super().__init__()
        self.device, self.precision = library.device, library.precision
        self.concurrent_batches = library.concurrent_batches
        self.network = ImportedModel(library, pieces, config)

    def compute(self, sources: Sequence[Sequence[int]], request: Request) -> Hypotheses:
        return self.network.search(sources, request)


def open_folder(config: SessionConfig) -> Session:
    """A folder of the rule export_ctranslate2 or import_model, in the precision float32, int8, float16, or auto:
    float32 on CPUs, float16 on GPUs.

    Raises ArtifactError where the folder cannot be loaded, InputError where the library is not installed or cannot
    compute in this precision here.
    """
    assert config.folder is not None and config.subwords is not None, "engines with folders are opened with them"
    kind, _ = device_and_index(config.device)
    imported = isinstance(config.settings, CTranslate2Config)
    precision = config.mode
    # A model that only ranks outputs is opened as our own networks are, in the precision of the machine.
    if precision == "auto" or (imported and precision not in COMPUTE_TYPES):
        precision = "float16" if kind == "cuda" and precision == "auto" else "float32"
    pieces = Pieces(config.folder, config.settings) if imported else None
    library = CTranslate2Session(
        config.folder,
        pieces.names if pieces else config.subwords.names(),
        config.settings.max_positions,
        config.device,
        precision,
        config.threads,
        affixes=pieces.affixes if pieces else None,
    )
    return ImportedSession(library, pieces, config) if pieces else library
