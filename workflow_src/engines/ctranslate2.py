"""Greedy and beam search by CTranslate2, with the settings and the limits of our own search (`searches`).

The library takes one length limit per call, our search one per sentence. Sentences are therefore decoded in batches of
similar length with the largest of their limits; sentences with hypotheses beyond their own limit are decoded once more
alone. Only hypotheses that a limit cuts can differ from ours: we let every hypothesis end there, the library stops.
"""

from __future__ import annotations

import dataclasses
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from workflow_src.decoding.lengths import longest
from workflow_src.engines.ctranslate2_spec import library, write_model
from workflow_src.engines.session import Request, Session, SessionConfig
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.runtime import forks
from workflow_src.runtime.device import check_device
from workflow_src.types import EOS, Hypotheses, Ranked, max_positions

COMPUTE_TYPES = ("float32", "int8", "float16")


def device_and_index(device: str) -> tuple[str, int]:
    """The library's kind and index of the device `auto`, `cpu`, `cuda` or `cuda:N`; auto is a GPU if there is one.

    Raises InputError for a device that this machine lacks.
    """
    gpus = library().get_cuda_device_count()
    if device == "auto":
        device = "cuda" if gpus else "cpu"
    check_device(device, gpus)
    kind, _, index = device.partition(":")
    return kind, int(index or 0)


@dataclasses.dataclass(frozen=True)
class Affixes:
    """Tokens of models made elsewhere: those around sentences, and the end symbol of outputs."""

    source_prefix: tuple[str, ...] = ()
    source_suffix: tuple[str, ...] = ()
    target_prefix: tuple[str, ...] = ()
    end: str | None = None


class CTranslate2Session(Session):
    """A loaded CTranslate2 model folder. `pieces` are the subwords of the ids of both sides, as when it was written.

    `threads` batches are decoded at once on a CPU, each with one thread. `affixes` are tokens around
    sentences; sources and outputs here do not have them.
    """

    def __init__(
        self,
        folder: str | Path,
        pieces: dict[str, list[str]],
        max_positions: int,
        device: str = "cpu",
        compute_type: str = "float32",
        threads: int = 1,
        affixes: Affixes | None = None,
    ):
        super().__init__()
        if compute_type not in COMPUTE_TYPES:
            raise ConfigError("precision", compute_type, allowed=COMPUTE_TYPES)
        ct2 = library()
        self.device, index = device_and_index(device)
        supported = ct2.get_supported_compute_types(self.device, index)
        if compute_type not in supported:
            problem = f"it does not run on this {self.device} with CTranslate2"
            raise ConfigError("precision", compute_type, problem=problem, allowed=supported & set(COMPUTE_TYPES))
        self.folder = folder
        self.precision = compute_type
        self.concurrent_batches = threads
        self._options: dict[str, Any] = {
            "device": self.device,
            "device_index": index,
            "compute_type": compute_type,
            "inter_threads": threads if self.device == "cpu" else 1,
            # Threads within a batch gain little, and wait busily for each other where other programs run.
            "intra_threads": 1,
        }
        self._opened = self._open()
        self._lock = threading.Lock()
        forks.renew_in_children(self)
        self.max_positions = max_positions
        self.source_pieces = pieces["source"]
        self.target_ids = {piece: number for number, piece in enumerate(pieces["target"])}
        self.affixes = affixes or Affixes()
        self.end = self.affixes.end or pieces["target"][EOS]
        self.target_pieces = pieces["target"]

    def _open(self) -> Any:
        threads = torch.get_num_threads()
        try:
            return library().Translator(str(self.folder), max_queued_batches=-1, **self._options)
        except RuntimeError as failure:
            problem = f"cannot be loaded by CTranslate2 ({' '.join(str(failure).split())})"
            raise ArtifactError(self.folder, problem, "make it again") from None
        finally:
            # The library changes OpenMP's setting for the calling thread, in which PyTorch may compute other systems.
            torch.set_num_threads(threads)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        # Freeing a translator waits for its threads, which a forked process does not have.
        forks.keep(self._opened)
        self._opened = None

    @property
    def translator(self) -> Any:
        """The library's translator, opened once more in a forked child. Threads may share it."""
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def compute(self, sources: Sequence[Sequence[int]], request: Request) -> Hypotheses:
        """Greedy search is a beam of one. Scores are log-probability / (tokens with the end symbol) ** length_penalty.
        Hypotheses that did not end are left out, unless none did."""
        settings: Any = request.settings
        # Greedy search has neither a beam nor a penalty.
        beam, penalty = getattr(settings, "beam", 1), getattr(settings, "length_penalty", 1.0)
        lengths = torch.tensor([len(source) for source in sources], dtype=torch.float64)
        positions = self.max_positions - len(self.affixes.target_prefix)
        limits = longest(lengths, settings.max_length_ratio, positions).tolist()
        words = [self.source_words(source) for source in sources]
        options: dict[str, Any] = {
            # All hypotheses are returned: one beyond the limit shows that the search went on beyond it.
            "beam_size": beam,
            "num_hypotheses": beam,
            # With a penalty of exactly 0 the library ends a search earlier than ours does.
            "length_penalty": max(penalty, 1e-9),
            "return_end_token": True,
            "min_decoding_length": 0,
            "max_input_length": 0,
            "return_scores": request.details,
        }
        results = self._translated(words, max(limits), options)
        ranked: list[Ranked] = []
        cut: list[bool] = []
        for source, limit, result in zip(words, limits, results, strict=True):
            if any(len(hypothesis) > limit + 1 + len(self.affixes.target_prefix) for hypothesis in result.hypotheses):
                (result,) = self._translated([source], limit, options)
            ended = self._ended(result)
            cut.append(len(ended) < len(result.hypotheses))
            ranked.append(ended or [self._cut_short(result, limit)])
        scores, tokens = zip(*(entries[0] for entries in ranked), strict=True)
        return Hypotheses(list(tokens), list(scores), [0] * len(sources), cut=cut, ranked=lambda: ranked)

    def _translated(self, words: list[list[str]], limit: int, options: dict[str, Any]) -> list[Any]:
        prefix = list(self.affixes.target_prefix)
        return self.translator.translate_batch(
            words,
            target_prefix=[prefix] * len(words) if prefix else None,
            max_decoding_length=limit + 1 + len(prefix),
            **options,
        )

    def source_words(self, source: Sequence[int]) -> list[str]:
        """Tokens of a source, with affixes."""
        affixes = self.affixes
        return [*affixes.source_prefix, *(self.source_pieces[i] for i in source), *affixes.source_suffix]

    def score(self, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], batch: int) -> list[float]:
        """log p(y|x) of every output and its end."""
        if not sources:
            return []
        prefix = list(self.affixes.target_prefix)
        results = self.translator.score_batch(
            [self.source_words(source) for source in sources],
            [[*prefix, *(self.target_pieces[i] for i in output)] for output in outputs],
            max_batch_size=batch,
            max_input_length=0,
            # The prefix is no choice of the model.
            offset=len(prefix),
        )
        return [sum(result.log_probs) for result in results]

    def _ended(self, result: Any) -> Ranked:
        """Scores (0 where there are none) and ids of the hypotheses that ended, best first."""
        return [
            (score, self._ids(pieces[:-1]))
            for score, pieces in zip(_scores(result), map(self._outputs, result.hypotheses), strict=True)
            if pieces and pieces[-1] == self.end
        ]

    def _cut_short(self, result: Any, limit: int) -> tuple[float, list[int]]:
        """The best hypothesis, with its score, cut at the limit."""
        return _scores(result)[0], self._ids(self._outputs(result.hypotheses[0])[:limit])

    def _outputs(self, pieces: list[str]) -> list[str]:
        return pieces[len(self.affixes.target_prefix) :]

    def _ids(self, pieces: list[str]) -> list[int]:
        return [self.target_ids[piece] for piece in pieces]


def _scores(result: Any) -> list[float]:
    return result.scores or [0.0] * len(result.hypotheses)


def open_distilling(config: SessionConfig) -> CTranslate2Session:
    """A session in float32 of the one network of a system, for much text. No folder of it is kept.

    Where the length limit cuts a hypothesis (`Hypotheses.cut`), the library stops and our own search goes on: the two
    may differ there.
    """
    (network,) = config.networks.values()
    assert config.subwords is not None, "systems of bundles have subwords"
    names = config.subwords.names()
    # The library holds the model in memory once it is loaded; the folder is only how it gets there.
    with tempfile.TemporaryDirectory() as folder:
        write_model(network, names, folder)
        return CTranslate2Session(folder, names, max_positions(network), device=config.device, threads=config.threads)
