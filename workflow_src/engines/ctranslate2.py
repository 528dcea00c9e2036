"""Greedy and beam search by CTranslate2, with the settings and the limits of our own search (`searches`).

The library takes one length limit per call, our search one per sentence. Sentences are therefore decoded in batches of
similar length with the largest of their limits; sentences with hypotheses beyond their own limit are decoded once more
alone. Only hypotheses that a limit cuts can differ from ours: we let every hypothesis end there, the library stops.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workflow_src.decoding.batches import Watch, longest_first
from workflow_src.engines.ctranslate2_spec import library
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.runtime import forks
from workflow_src.runtime.device import check_device
from workflow_src.spec import SearchSettings
from workflow_src.types import EOS, Hypotheses, Ranked

COMPUTE_TYPES = ("float32", "int8", "float16")
# Settings of greedy and beam search that are arguments of `Engine.search`.
SETTINGS = ("beam", "length_penalty", "max_length_ratio")


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


class _OfThread(threading.local):
    """What an engine keeps for each thread."""

    def __init__(self) -> None:
        self.cut: list[int] = []


class Engine:
    """A loaded CTranslate2 model folder. `pieces` are the subwords of the ids of both sides, as when it was written.

    `inter_threads` batches are decoded at once, each with `intra_threads` threads. `affixes` are tokens around
    sentences; sources and outputs here do not have them.
    """

    def __init__(
        self,
        folder: str | Path,
        pieces: dict[str, list[str]],
        max_positions: int,
        device: str = "cpu",
        compute_type: str = "float32",
        inter_threads: int = 1,
        intra_threads: int = 1,
        affixes: Affixes | None = None,
    ):
        if compute_type not in COMPUTE_TYPES:
            raise ConfigError("compute_type", compute_type, allowed=COMPUTE_TYPES)
        ct2 = library()
        self.kind, index = device_and_index(device)
        supported = ct2.get_supported_compute_types(self.kind, index)
        if compute_type not in supported:
            problem = f"it does not run on this {self.kind} with CTranslate2"
            raise ConfigError("compute_type", compute_type, problem=problem, allowed=supported & set(COMPUTE_TYPES))
        self.folder = folder
        self._options: dict[str, Any] = {
            "device": self.kind,
            "device_index": index,
            "compute_type": compute_type,
            "inter_threads": inter_threads,
            "intra_threads": intra_threads,
        }
        self._opened = self._open()
        self._lock = threading.Lock()
        self._of_thread = _OfThread()
        forks.renew_in_children(self)
        self.max_positions = max_positions
        self.source_pieces = pieces["source"]
        self.target_ids = {piece: number for number, piece in enumerate(pieces["target"])}
        self.affixes = affixes or Affixes()
        self.end = self.affixes.end or pieces["target"][EOS]
        self.target_pieces = pieces["target"]

    def _open(self) -> Any:
        try:
            return library().Translator(str(self.folder), max_queued_batches=-1, **self._options)
        except RuntimeError as failure:
            problem = f"cannot be loaded by CTranslate2 ({' '.join(str(failure).split())})"
            raise ArtifactError(self.folder, problem, "make it again") from None

    @property
    def cut(self) -> list[int]:
        """Sentences of the last search of this thread (positions in its sources) of which a limit cut a hypothesis."""
        return self._of_thread.cut

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        # It waits for its threads also to be freed.
        forks.keep(self._opened)
        self._opened = None

    @property
    def translator(self) -> Any:
        """The library's translator, opened once more in a forked child. Threads may share it."""
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def limit(self, length: int, ratio: float) -> int:
        """The longest output of a source of `length` subwords, as `beam.limits` has it."""
        return min(int(length * ratio + 10), self.max_positions - 1 - len(self.affixes.target_prefix))

    def decode(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        batch: int = 64,
        scored: bool = True,
        ranked: bool = False,
        watch: Watch | None = None,
    ) -> Hypotheses:
        """`search` with the settings of a greedy or beam search."""
        # Greedy search has neither a beam nor a penalty: it is a beam of one.
        fields = {name: value for name, value in dict(settings).items() if name in SETTINGS}
        return self.search(sources, **fields, batch=batch, scored=scored, ranked=ranked, watch=watch)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        beam: int = 1,
        length_penalty: float = 1.0,
        max_length_ratio: float = 2.0,
        batch: int = 64,
        scored: bool = True,
        ranked: bool = False,
        watch: Watch | None = None,
    ) -> Hypotheses:
        """The best hypothesis for each source (subword ids without end symbols); greedy search is beam 1.

        Scores are log-probability / (tokens with the end symbol) ** length_penalty; 0 without `scored`. Empty sources
        are not searched: their translation is empty. With `ranked`, all hypotheses that ended are kept. `watch` is
        called after every batch.
        """
        limits = [self.limit(len(source), max_length_ratio) for source in sources]
        words = [self.source_words(source) for source in sources]
        # With a penalty of exactly 0 the library ends a search earlier than ours does.
        penalty = max(length_penalty, 1e-9) if beam > 1 else 1.0
        options: dict[str, Any] = {
            # All hypotheses are returned: one beyond the limit shows that the search went on beyond it.
            "beam_size": beam,
            "num_hypotheses": beam,
            "length_penalty": penalty,
            "return_end_token": True,
            "min_decoding_length": 0,
            "max_input_length": 0,
            "return_scores": scored,
        }
        groups, count = longest_first(sources, batch), 0
        hypotheses = Hypotheses([[] for _ in sources], [0.0] * len(sources), [0] * len(sources))
        hypotheses_by_row: list[Ranked] = [[(0.0, [])] for _ in sources]
        hypotheses.ranked = (lambda: hypotheses_by_row) if ranked else None
        self._of_thread.cut = []
        for group, results in self._translate(words, groups, limits, options, len(groups) > 1):
            for i, result in zip(group, results, strict=True):
                longest = limits[i] + 1 + len(self.affixes.target_prefix)
                if any(len(hypothesis) > longest for hypothesis in result.hypotheses):
                    ((_, (result,)),) = self._translate(words, [[i]], limits, options, False)
                ended = self._ended(result, limits[i], i)
                hypotheses.scores[i], hypotheses.tokens[i] = ended[0]
                if ranked:
                    hypotheses_by_row[i] = ended
            count += len(group)
            if watch is not None:
                watch(count, sum(map(len, groups)))
        return hypotheses

    def _translate(
        self,
        words: Sequence[list[str]],
        groups: Sequence[list[int]],
        limits: Sequence[int],
        options: dict[str, Any],
        asynchronous: bool,
    ) -> Iterator[tuple[list[int], list[Any]]]:
        """(group, its results) for groups of sentences; `asynchronous`: several at once, as threads allow."""
        prefix = list(self.affixes.target_prefix)
        started = [
            self.translator.translate_batch(
                [words[i] for i in group],
                target_prefix=[prefix] * len(group) if prefix else None,
                max_decoding_length=max(limits[i] for i in group) + 1 + len(prefix),
                asynchronous=asynchronous,
                **options,
            )
            for group in groups
        ]
        for group, results in zip(groups, started, strict=True):
            yield group, [result.result() for result in results] if asynchronous else results

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

    def _ended(self, result: Any, limit: int, sentence: int) -> Ranked:
        """Scores (0 where there are none) and ids of the hypotheses that ended, best first; where none did, of the best
        hypothesis, cut at the limit."""
        scores = result.scores or [0.0] * len(result.hypotheses)
        outputs = [pieces[len(self.affixes.target_prefix) :] for pieces in result.hypotheses]
        ended = [
            (score, pieces[:-1])
            for score, pieces in zip(scores, outputs, strict=True)
            if pieces and pieces[-1] == self.end
        ]
        if len(ended) < len(result.hypotheses):
            self.cut.append(sentence)
        hypotheses = ended or [(scores[0], outputs[0][:limit])]
        return [(score, [self.target_ids[piece] for piece in pieces]) for score, pieces in hypotheses]
