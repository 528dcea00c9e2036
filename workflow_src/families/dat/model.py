"""The directed acyclic Transformer (Huang et al. 2022): source states through one parallel decoder, and a graph.

Every vertex has a distribution of symbols and one of next vertices. A translation is a path from the first vertex,
which puts out the start symbol, to the last one, which puts out the end symbol.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workflow_src.families.dat import DatConfig
from workflow_src.losses.path_scores import GraphStates, graph_states, output_log_probability
from workflow_src.nn.copying import soft_centres, soft_copy, with_shown
from workflow_src.nn.layers import Memory, Stack, attention_bias, initialise
from workflow_src.nn.models import EncoderDecoder, GraphModel, Scorer
from workflow_src.nn.transitions import Transitions
from workflow_src.nn.widths import multiplied, places, ratio_of
from workflow_src.types import EOS

# The vertices of the start and of the end.
FEWEST = 2


class DirectedAcyclicTransformer(EncoderDecoder, GraphModel, Scorer):
    """`logits` are those of words: the start and the end are at the first and the last vertex alone."""

    def __init__(self, config: DatConfig, source_size: int, target_size: int, joint: bool):
        super().__init__(config, source_size, target_size, joint, barred=range(EOS + 1))
        self.decoder = Stack(config, config.layers, cross=True)
        self.vertices_per_subword = ratio_of(config.vertices)
        self.transition = Transitions(config.dim, config.heads, config.max_positions)
        self.vertex_positions: nn.Parameter | None = None
        if config.inputs == "positions":
            # As large as embeddings, which are multiplied by sqrt(D), so that layers can tell vertices apart.
            self.vertex_positions = nn.Parameter(torch.randn(config.max_positions, config.dim))
        initialise(self)

    def vertices_of(self, lengths: Tensor) -> Tensor:
        """Vertices (B,) int64 of sources of lengths (B,): `vertices` times as many, rounded up.

        At least 2, the start and the end, and never more than the model has positions.
        """
        count = multiplied(lengths, self.vertices_per_subword)
        return count.clamp(min=FEWEST, max=max(FEWEST, self.config.max_positions))

    def most_vertices(self, width: int) -> int:
        """The most vertices of sources (B, width)."""
        return max(FEWEST, min(multiplied(width, self.vertices_per_subword), self.config.max_positions))

    def hidden(self, memory: Memory, shown: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Last decoder states (B, L, D) and the mask (B, L) of real vertices.

        Vertices of `shown` (B, L) that are not NOT_SHOWN begin with that symbol's embedding.
        """
        vertices = self.vertices_of(memory.mask.sum(1))
        bound = self.most_vertices(memory.mask.size(1))
        indices, mask = places(vertices, self.config.max_positions, memory, bound)
        if self.vertex_positions is None:
            inputs = soft_copy(memory, vertices, indices)
            codes = self.source_embedding.positions
        else:
            inputs = memory.states.new_zeros(*mask.shape, self.config.dim)
            codes = self.vertex_positions
        inputs = with_shown(inputs, shown, self.target_embedding) + codes[: indices.size(0)].to(inputs.dtype)
        return self.decoder(inputs, attention_bias(mask), memory), mask

    def transitions(self, hidden: Tensor, mask: Tensor) -> Tensor:
        return self.transition(hidden, mask)

    def vertex_origins(self, lengths: Tensor, vertices: Tensor, indices: Tensor) -> Tensor:
        """The position that a soft copy is centred on, the nearest to (j + 1/2) S / L - 1/2; with `inputs: positions`,
        the same place in proportion, which nothing is copied from."""
        return soft_centres(lengths, vertices, indices)

    def scoring_states(self, source: Tensor) -> GraphStates:
        """The states that outputs of source (B, S) are scored from: those of the whole pass."""
        return graph_states(self, source)

    def log_probability(self, states: GraphStates, target: Tensor) -> Tensor:
        """log p(y|x) of target (B, T), (B,), summed over paths; -inf where there is none."""
        return output_log_probability(self, states, target)
