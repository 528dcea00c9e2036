"""Searches with a program, of any family, with static shapes, on GPUs captured in CUDA graphs: one launch a batch.

Sources are padded to buckets. How wide outputs are depends on values, such as predicted lengths: a program is made for
the widest outputs that sources of its bucket had so far, and tells how wide they would have to be. Where that is more,
the batch is computed again by a wider program. On a CPU the same programs run as they are, uncaptured, which is what
tests compare with eager inference. Latent inference has programs of its own (`cuda_graphs.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from workflow_src import registry
from workflow_src.decoding.passes import Pass, graph_key, make_pass, own_networks, width_of
from workflow_src.engines.cuda_graphs import CapturedLatent, Program, bucket, filled, open_latent, rows
from workflow_src.nn.layers import check_length
from workflow_src.spec import SearchSettings
from workflow_src.types import Hypotheses

# What a search works with, by role.
Networks = Mapping[str, nn.Module] | None
# A graph, sentences and source width.
Key = tuple[str, int, int]


class CapturedPasses:
    """The searches of a system that have programs, without scores. `models` are its networks by family.

    Programs live as long as this object. They share the memory that they compute in, and each keeps that of its
    outputs, which are read before another one runs: logits, where a search reads these.
    """

    def __init__(self, models: Mapping[str, nn.Module], device: torch.device):
        self.models, self.device = dict(models), device
        self.limit = min(model.config.max_positions for model in models.values())
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        # By settings: the networks that a search works with, the pass made with them, and what tells its graph.
        self._passes: dict[SearchSettings, tuple[Networks, Pass, str]] = {}
        # By graph, sentences and source width: the ids, and how wide outputs were.
        self._sources: dict[Key, Tensor] = {}
        self._widths: dict[Key, int] = {}
        self._programs: dict[Key, Program] = {}

    @torch.no_grad()
    def translate(
        self, sources: Sequence[Sequence[int]], settings: SearchSettings, networks: Networks = None
    ) -> Hypotheses:
        """Translate sources of subword ids (not empty, without end symbols), as one batch; scores are 0.

        `networks` by role are all that a search works with, the system's own model among them; None: its own alone.
        """
        count = len(sources)
        made, graph = self._pass(settings, networks)
        key = graph, rows(count), bucket(max(map(len, sources)) + 1, self.limit)
        ids = filled(sources, *key[1:])
        # Rows to spare are read no further. A search may have several for a sentence.
        outputs = [part[: count * (len(part) // len(ids))] for part in self._outputs(key, made, ids)]
        if made.read_tensors is not None:
            found = made.read_tensors(ids[:count].to(self.device), outputs)
            return Hypotheses(found.tokens, [0.0] * count, found.steps, candidates=found.candidates)
        read = [(part.float() if part.is_floating_point() else part).cpu().numpy() for part in outputs]
        if made.read is not None:
            found = made.read(ids[:count].numpy(), read)
            return Hypotheses(found.tokens, [0.0] * count, found.steps)
        tokens = made.finished(*(part.tolist() for part in read))
        return Hypotheses(tokens, [0.0] * count, [made.steps] * count)

    def _outputs(self, key: Key, made: Pass, ids: Tensor) -> tuple[Tensor, ...]:
        if key not in self._sources:
            source = ids.to(self.device)
            self._widths[key] = self._widest(made, source)
            self._sources[key] = source
        self._sources[key].copy_(ids)
        while True:
            outputs, needed = self._program(key, made)()
            wanted = 0 if needed is None else int(needed)
            if wanted <= self._widths[key]:
                return outputs
            check_length(wanted, self.limit)
            # It is never asked again.
            del self._programs[key]
            self._widths[key] = bucket(wanted, self.limit)

    def _widest(self, made: Pass, ids: Tensor) -> int:
        """How wide outputs of these sources are, rounded up; 0 where that does not depend on values."""
        with width_of(None) as width:
            made.module(ids)
        return 0 if width.most is None else bucket(int(width.most), self.limit)

    def _program(self, key: Key, made: Pass) -> Program:
        if key not in self._programs:
            size, ids = self._widths[key], self._sources[key]

            def compute() -> tuple[tuple[Tensor, ...], Tensor | None]:
                with width_of(size) as width:
                    outputs = made.module(ids)
                return outputs, width.most

            self._programs[key] = Program(compute, self.device, self.pool)
        return self._programs[key]

    def _pass(self, settings: SearchSettings, networks: Networks) -> tuple[Pass, str]:
        known = self._passes.get(settings)
        if known is None or (known[0] is not networks and known[0] != networks):
            made = make_pass(networks or own_networks(self.models, settings), settings, False)
            known = self._passes[settings] = networks, made, graph_key(settings)
        return known[1:]


class Captured:
    """The engine for networks by family: latent inference by its own programs, other searches by theirs."""

    gives_scores = False

    def __init__(self, models: Mapping[str, Any], device: torch.device):
        self.latent: CapturedLatent | None = open_latent(models, device)
        self.passes = CapturedPasses(models, device)

    def ready(self, settings: SearchSettings, scored: bool, networks: Any = None, alone: bool = True) -> bool:
        """A capture takes a moment, not seconds."""
        return True

    def gains_in_batches(self, settings: SearchSettings) -> bool:
        return True

    def translate(
        self, sources: Sequence[Sequence[int]], settings: SearchSettings, scored: bool, networks: Any = None
    ) -> Hypotheses:
        """`scored` must be False: it is there for the sake of other engines. `networks` are those of the search."""
        assert not scored, "captured programs give no scores"
        if self.latent is not None and self.latent.serves(registry.search_of(settings).name):
            return self.latent.translate(sources, settings)
        return self.passes.translate(sources, settings, networks)


def open_networks(models: Mapping[str, Any], mode: str, device: torch.device) -> Captured:
    return Captured(models, device)
