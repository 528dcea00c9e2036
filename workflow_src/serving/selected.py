"""The engine that computes the searches of a translator."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

import torch

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.decoding.batches import Watch, longest_first, search_rows
from workflow_src.engines.choose import why_not
from workflow_src.engines.exports import EXPORTS
from workflow_src.engines.session import Request, Session
from workflow_src.errors import ConfigError
from workflow_src.spec import Engine, Family, SearchSettings
from workflow_src.types import Hypotheses

log = logging.getLogger("continuum")


@dataclasses.dataclass(frozen=True)
class SelectedEngine:
    """An engine, opened as `session` for a system of `family`, beside our own code (`eager`), which computes what the
    engine does not serve. `automatic`: it was not chosen by name."""

    declared: Engine
    family: Family
    session: Session
    eager: Session
    automatic: bool = False

    def search(self, sources: Sequence[Sequence[int]], request: Request, watch: Watch | None) -> Hypotheses:
        """See `Translator.search_ids`. Graphs that are missing are exported before the first batch."""
        # A last batch may be a sentence by itself.
        forms = {len(rows) == 1 for rows in longest_first(sources, request.batch)}
        sessions = {alone: self._session_for(request, alone) for alone in forms}

        def search_batch(rows: list[Sequence[int]]) -> Hypotheses:
            return sessions[len(rows) == 1].search(rows, request)

        return search_rows(search_batch, sources, request.batch, request.ranked, watch, self.session.concurrent_batches)

    @torch.no_grad()
    def origins(
        self, sources: Sequence[Sequence[int]], request: Request, outputs: Sequence[Sequence[Sequence[int]]]
    ) -> list[list[list[int]]]:
        """The source position of each subword of the outputs of each sentence, for a search that knows them."""
        search = self.eager.opened(request)
        # Empty sources have one output, without subwords.
        positions: list[list[list[int]]] = [[[]] for _ in sources]
        with EXPORTS.computing():
            for rows in longest_first(sources, request.batch):
                source = pad([sources[row] for row in rows], eos=True).to(self.eager.device, non_blocking=True)
                origins = search.origins(source, [outputs[row] for row in rows])
                for row, values in zip(rows, origins, strict=True):
                    positions[row] = values
        return positions

    def _session_for(self, request: Request, alone: bool) -> Session:
        """What computes sentences one at a time (`alone`) or in batches.

        A graph that an engine chosen by name lacks is exported, with a warning. Calls with an automatic one do not wait
        for an export, which takes seconds: `prepare` does.
        """
        if request.trace or not self._serves(request.settings):
            return self.eager
        if not self.automatic:
            self.session.prepare(request, alone)
            return self.session
        is_faster = self.session.ready(request, alone) and self.session.gains(request, alone)
        return self.session if is_faster else self.eager

    def prepare(self, request: Request) -> bool:
        """See `Translator.prepare`."""
        alone = request.batch == 1
        if self.session is self.eager or self.declared.exports or not self._serves(request.settings):
            return False
        if self.automatic and not self.session.gains(request, alone):
            return False
        try:
            self.session.prepare(request, alone)
            if not self.automatic:
                # A last batch may be a sentence by itself.
                self.session.prepare(request, True)
        except ConfigError as failure:
            if not self.automatic:
                raise
            name = registry.search_of(request.settings).name
            log.warning("search %s stays eager: %s", name, failure)
            return False
        return True

    def why_eager(self, settings: SearchSettings) -> str | None:
        """See `Translator.why_eager`."""
        if self.automatic or self._serves(settings):
            return None
        reason = why_not(self.declared, self.family, settings)
        return f"search {registry.search_of(settings).name} is computed eagerly: engine {self.declared.name} {reason}."

    def _serves(self, settings: SearchSettings) -> bool:
        """Whether the engine computes a search; searches that the engine of a folder does not are refused earlier."""
        return bool(self.declared.exports) or why_not(self.declared, self.family, settings) is None
