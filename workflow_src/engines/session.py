"""What an engine of the table opens: a session, which searches batches of subword ids as a request says."""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from workflow_src import registry
from workflow_src.config.experiment import Removal
from workflow_src.data.normalise import Normaliser
from workflow_src.data.subwords import Subwords
from workflow_src.decoding.search import SearchModule, open_search, scores_not_finite
from workflow_src.engines.exports import EXPORTS
from workflow_src.runtime.bounded import Bounded
from workflow_src.spec import SearchSettings
from workflow_src.types import Hypotheses, Networks

# Searches that a session keeps open.
KEPT_SEARCHES = 16


@dataclasses.dataclass(frozen=True, eq=False)
class Request:
    """What a call asks for. `Translator.request` makes it, and checks it against the system.

    settings            of the search
    networks            of the search, by role
    batch               sentences that are computed together
    n_best              number of hypotheses of a line; None: one, without details
    return_scores       whether scores are computed; without, they are 0, or those before ranking
    return_origins      whether the source subwords are found that outputs were read off
    trace               whether hypotheses have the outputs after every step
    split               whether lines are split into sentences; without, and for normalised lines, a line is one
    placeholders        whether placeholders of outputs become the text of their sources; without, they are shown as <1>
    normalised          whether lines are normalised already, as those of a corpus folder: Moses tokenisation of
                        tokenised text is not the same text
    remove_repetitions  none, subwords (runs of a subword become one before they are joined) or words (the same with
                        words of the text); None: the setting of the bundle's experiment, or else none for
                        autoregressive searches and models with alignments or graphs, and subwords for all others
    """

    settings: SearchSettings
    networks: Networks = dataclasses.field(default_factory=dict)
    batch: int = 64
    n_best: int | None = None
    return_scores: bool = False
    return_origins: bool = False
    trace: bool = False
    split: bool = True
    placeholders: bool = True
    normalised: bool = False
    remove_repetitions: Removal | None = None

    @property
    def details(self) -> bool:
        """Whether each line gives a `Translation` in place of text, which needs scores."""
        return self.n_best is not None or self.return_scores or self.return_origins

    @property
    def splits(self) -> bool:
        """Whether lines are split into sentences."""
        return self.split and not self.normalised

    @property
    def ranked(self) -> bool:
        """Whether all hypotheses that the search holds are needed."""
        return (self.n_best or 1) > 1

    @functools.cached_property
    def key(self) -> Hashable:
        """What an opened search depends on."""
        return self.settings, self.details, *self.networks.items()


@dataclasses.dataclass(frozen=True)
class SessionConfig:
    """The system that an engine opens: its `networks` by family, or the `folder` of an engine with files of its own.

    `mode` is that of the engine (`Engine.modes`), or the precision for a folder. A folder has the `settings` of its
    network, subwords, and the normalisers of both sides.
    """

    device: str
    mode: str
    threads: int
    networks: Mapping[str, nn.Module] = dataclasses.field(default_factory=dict)
    folder: Path | None = None
    settings: Any = None
    subwords: Subwords | None = None
    source: Normaliser | None = None
    target: Normaliser | None = None


class Session(ABC):
    """An engine, opened for a system. Threads may share it."""

    # The network of a folder, if it scores outputs of other systems; its device and precision.
    network: Any = None
    device: str
    precision: str
    # Batches that it computes at once.
    concurrent_batches: int = 1

    def __init__(self) -> None:
        self._searches: Bounded[Hashable, SearchModule] = Bounded(KEPT_SEARCHES)

    def search(self, sources: Sequence[Sequence[int]], request: Request) -> Hypotheses:
        """Hypotheses for sources (subword ids without end symbols, none empty), computed as one batch.

        Raises InputError where a best score is no finite number: the numbers of the search left their range.
        """
        with EXPORTS.computing(), torch.no_grad():
            hypotheses = self.compute(sources, request)
        if not all(map(math.isfinite, hypotheses.scores)):
            raise scores_not_finite(registry.search_of(request.settings).name)
        return hypotheses

    @abstractmethod
    def compute(self, sources: Sequence[Sequence[int]], request: Request) -> Hypotheses:
        """`search`, while no graph is exported."""

    def opened(self, request: Request) -> SearchModule:
        """The search of a request. It is kept: opening one takes longer than some sentences (tables of noise)."""
        module = self._searches.get(request.key)
        if module is None:
            module = self._searches[request.key] = open_search(request.networks, request.settings, request.details)
        return module

    def ready(self, _request: Request, _alone: bool) -> bool:
        """Whether single sentences (`alone`), or batches, can be translated without seconds of preparation."""
        return True

    def prepare(self, _request: Request, _alone: bool) -> None:  # noqa: B027
        """Prepare for single sentences, or for batches, which may take seconds. Raises ConfigError where it fails."""

    def gains(self, _request: Request, _alone: bool) -> bool:
        """Whether it is faster than our own code for single sentences, or for batches."""
        return True
