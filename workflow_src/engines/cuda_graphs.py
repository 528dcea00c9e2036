"""Latent inference with static shapes, on GPUs captured in CUDA graphs: a sentence costs two launches, not hundreds.

Shapes are rounded up to buckets. For each there are two programs: encoder with length head, and prior, refinement
steps, decoder and argmax. Between them the CPU reads the lengths, which choose the second bucket. On a CPU the same
programs run as they are, uncaptured, which is what tests compare with `decoding/latent.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from workflow_src import registry
from workflow_src.decoding.latent import best_tokens, delta_step, gradient_step, refine, without_ends
from workflow_src.spec import SearchSettings
from workflow_src.types import EOS, PAD, Hypotheses, LatentModel, Refiner

SEARCHES = ("prior-mean", "delta", "score")
# Runs before a capture: libraries choose kernels and take workspace, which a graph cannot do.
WARM_UP = 3


def bucket(length: int, limit: int) -> int:
    """The static length for a sequence: the next multiple of 8 up to 64, of 32 up to 256, then of 128; at most `limit`.

    Padding wastes little, and the number of programs stays small.
    """
    for step, end in ((8, 64), (32, 256)):
        if length <= end:
            return min(-(-length // step) * step, limit)
    return min(-(-length // 128) * 128, limit)


def rows(sentences: int) -> int:
    """The static number of sentences: the next power of two."""
    return 1 << (sentences - 1).bit_length()


def filled(sources: Sequence[Sequence[int]], size: int, width: int) -> Tensor:
    """Sources with end symbols in a (size, width) tensor; rows to spare repeat the first, or are an end symbol."""
    lines = [[*source, EOS] for source in sources]
    lines += [lines[0] if lines else [EOS]] * (size - len(sources))
    return torch.tensor([line + [PAD] * (width - len(line)) for line in lines])


class Program:
    """A function of static tensors without arguments, captured where the device is a GPU; its result is reused."""

    def __init__(self, function: Callable[[], Any], device: torch.device, pool: Any = None):
        self.function, self.graph, self.result = function, None, None
        if device.type != "cuda":
            return
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                function()
        torch.cuda.current_stream(device).wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.result = function()

    def __call__(self) -> Any:
        if self.graph is None:
            self.result = self.function()
        else:
            self.graph.replay()
        return self.result


class CapturedLatent:
    """Searches `SEARCHES` of a model and, where one is given, its score network, without scores of sentences.

    Programs live as long as this object. Their number is bounded by the buckets: 16 lengths a side up to 512
    positions. They share memory: a program's result is read, or used up by the program that follows it, before
    another one runs.
    """

    def __init__(self, model: LatentModel, max_positions: int, device: torch.device, score: Refiner | None = None):
        self.model, self.score, self.limit, self.device = model, score, max_positions, device
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self._encoders: dict[tuple, tuple[Tensor, Program]] = {}
        self._refiners: dict[tuple, Program] = {}

    @torch.no_grad()
    def search(
        self,
        sources: Sequence[Sequence[int]],
        search: str,
        steps: int = 0,
        step_size: float = 1.0,
        scored: bool = False,
        length_quantile: float | None = None,
        lengthening: float = 0.0,
    ) -> Hypotheses:
        """Translate sources of subword ids (not empty, without end symbols), as one batch; scores are 0.

        `scored` must be False: it is there for the sake of other engines. Raises ValueError for a search that this
        class or this system lacks.
        """
        assert not scored, "captured programs give no scores"
        if search not in SEARCHES:
            raise ValueError(f'unknown search "{search}"; allowed: {", ".join(SEARCHES)}.')
        if search == "score" and self.score is None:
            raise ValueError("search score needs a score network; this system has none.")
        steps = 0 if search == "prior-mean" else steps
        size, width = rows(len(sources)), bucket(max(map(len, sources)) + 1, self.limit)
        source = (size, width, length_quantile, lengthening)
        ids, encoder = self._encoder(*source)
        ids.copy_(filled(sources, size, width))
        _, lengths = encoder()
        # The one wait for the device before the end: how long the outputs are decides what runs next.
        ends = (lengths + self.model.extra_positions).tolist()
        longest = bucket(max(ends[: len(sources)]), self.limit)
        tokens = self._refiner(source, longest, search, steps, step_size)()
        made = without_ends(tokens[: len(sources)].tolist(), ends[: len(sources)])
        return Hypotheses(made, [0.0] * len(made), [steps] * len(made))

    def serves(self, search: str) -> bool:
        return search in SEARCHES and not (search == "score" and self.score is None)

    def translate(self, sources: Sequence[Sequence[int]], settings: SearchSettings) -> Hypotheses:
        """`search` as settings say."""
        steps, size = getattr(settings, "steps", 0), getattr(settings, "step_size", 1.0)
        name = registry.search_of(settings).name
        return self.search(sources, name, steps, size, False, settings.length_quantile, settings.lengthening)

    def _encoder(self, size: int, width: int, quantile: float | None, lengthening: float) -> tuple[Tensor, Program]:
        key = (size, width, quantile, lengthening)
        if key not in self._encoders:
            # Real content, so that the runs before a capture compute what later ones do.
            ids = filled([], size, width).to(self.device)

            def encode():
                memory = self.model.encode(ids)
                return memory, self.model.predict_lengths(memory, quantile, lengthening)

            self._encoders[key] = (ids, Program(encode, self.device, self.pool))
        return self._encoders[key]

    def _refiner(self, source: tuple, longest: int, search: str, steps: int, step_size: float) -> Program:
        key = (source, longest, search, steps, step_size)
        if key not in self._refiners:
            encoder = self._encoders[source][1]

            def translate() -> Tensor:
                memory, lengths = encoder.result
                # Rows to spare may be longer than what is computed; nobody reads them.
                mask = torch.arange(longest, device=self.device) < (lengths + self.model.extra_positions)[:, None]
                z, _ = self.model.prior(memory, mask)
                z = refine(z, self._step(search, memory, mask, step_size), steps)
                return best_tokens(self.model, memory, z, mask)

            self._refiners[key] = Program(translate, self.device, self.pool)
        return self._refiners[key]

    def _step(self, search: str, memory: Any, mask: Tensor, step_size: float):
        if search == "score":
            return gradient_step(self.score, memory, mask, step_size)
        return delta_step(self.model, memory, mask)


def open_latent(models: Mapping[str, Any], device: torch.device) -> CapturedLatent | None:
    """The programs for networks by family; None for those that work in other latents, or in none."""
    if "lvm" not in models:
        return None
    limit = min(model.config.max_positions for model in models.values())
    return CapturedLatent(models["lvm"], limit, device, models.get("score"))
