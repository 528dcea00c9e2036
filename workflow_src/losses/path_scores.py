"""What an output is worth to a graph: its log-probability over all paths, and the vertices of its best one.

As in searches, the probabilities of words are those of words that may be put out, and the start and the end are certain
at the first and the last vertex. Shapes: B sentences, L vertices, T words of an output, M = T + 2 symbols.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from workflow_src.data.batching import pad
from workflow_src.losses.common import normalisers_of
from workflow_src.losses.paths import Paths, best_path, log_probability
from workflow_src.nn.models import GraphModel
from workflow_src.runtime.device import on_cpu, on_device
from workflow_src.spec import ROWS
from workflow_src.types import PAD, wide


@dataclasses.dataclass(frozen=True)
class GraphStates:
    """Decoder states of vertices, from which outputs of sentences are scored.

    hidden (B, L, D), mask (B, L) of real vertices, normalisers (B, L) of the logits of words, 0 elsewhere, and log E
    (B, L, L).
    """

    hidden: Tensor
    mask: Tensor
    normalisers: Tensor
    transitions: Tensor

    def select(self, rows: Tensor) -> GraphStates:
        """States of some sentences: `rows` are int64 indices into B, of any number."""
        return GraphStates(self.hidden[rows], self.mask[rows], self.normalisers[rows], self.transitions[rows])


def graph_states(model: GraphModel, source: Tensor) -> GraphStates:
    """The pass over source (B, S), without anything that depends on an output."""
    hidden, mask = model.hidden(model.encode(source))
    return GraphStates(hidden, mask, normalisers_of(model, hidden, mask), model.transitions(hidden, mask))


def output_log_probability(model: GraphModel, states: GraphStates, target: Tensor) -> Tensor:
    """log p(y|x) of outputs target (B, T), (B,), summed over paths; -inf where there is none."""
    paths = Paths.of(target, states.mask.sum(1))
    total = log_probability(_emissions(model, states, target), states.transitions, paths)
    return torch.where(paths.reachable, total, float("-inf"))


@torch.no_grad()
def source_positions(
    model: GraphModel, source: Tensor, outputs: Sequence[Sequence[Sequence[int]]]
) -> list[list[list[int]]]:
    """For outputs of each sentence of source (B, S), the source position of the vertex that put out each subword, on
    the most probable path of the output."""
    states = graph_states(model, source)
    lengths, vertices = (source != PAD).sum(1), states.mask.sum(1)
    origins = model.vertex_origins(lengths, vertices, torch.arange(states.mask.size(1), device=source.device))
    pairs = [(sentence, output) for sentence, of_sentence in enumerate(outputs) for output in of_sentence]
    positions: list[list[int]] = []
    for start in range(0, len(pairs), ROWS):
        chunk = pairs[start : start + ROWS]
        rows = on_device([sentence for sentence, _ in chunk], source.device)
        target = pad([output for _, output in chunk], eos=False).to(source.device)
        chosen = states.select(rows)
        paths = Paths.of(target, vertices[rows])
        path = best_path(_emissions(model, chosen, target), chosen.transitions, paths)
        (places,) = on_cpu(origins[rows].gather(1, path[:, 1:]))
        positions += [row[: len(output)] for row, (_, output) in zip(places.tolist(), chunk, strict=True)]
    remaining = iter(positions)
    return [list(itertools.islice(remaining, len(of_sentence))) for of_sentence in outputs]


def _emissions(model: GraphModel, states: GraphStates, target: Tensor) -> Tensor:
    """Log-probabilities (B, L, M) of the symbols of outputs target (B, T) at vertices.

    Paths come to the first vertex with the start alone, and to the last one with the end.
    """
    embedded = wide(F.embedding(target, model.target_embedding.weight))
    logits = torch.einsum("bld,btd->blt", wide(states.hidden), embedded) + wide(model.output_bias)[target][:, None]
    words = (logits - states.normalisers[..., None]) * states.mask[..., None]
    # The end stands behind the last word.
    words = words.masked_fill((target == PAD)[:, None], 0.0)
    return F.pad(words, (1, 1))
