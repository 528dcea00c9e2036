"""The CTC loss as a scorer: log p(y|x) of outputs, over all of their alignments with a model's slots."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from workflow_src.losses.aligned import own_symbols
from workflow_src.losses.common import normalisers_of
from workflow_src.losses.ctc import Lattice, occupancies
from workflow_src.nn.models import AlignedModel
from workflow_src.types import wide


@dataclasses.dataclass(frozen=True)
class SlotStates:
    """Decoder states at slots and the normalisers of their logits, from which outputs of sentences are scored.

    hidden (B, N, D), mask (B, N) of real slots, normalisers (B, N), 0 at the others.
    """

    hidden: Tensor
    mask: Tensor
    normalisers: Tensor

    def select(self, rows: Tensor) -> SlotStates:
        """States of some sentences: `rows` are int64 indices into B, of any number."""
        return SlotStates(self.hidden[rows], self.mask[rows], self.normalisers[rows])


def slot_states(model: AlignedModel, source: Tensor) -> SlotStates:
    """The pass over source (B, S), without anything that depends on an output.

    As in searches, probabilities are those of symbols that may be put out.
    """
    hidden, mask = model.hidden(model.encode(source))
    return SlotStates(hidden, mask, normalisers_of(model, hidden, mask))


def output_log_probability(model: AlignedModel, states: SlotStates, target: Tensor) -> Tensor:
    """log p(y|x) of outputs target (B, T), (B,): the CTC loss with its sign turned, over symbols that may be put out;
    -inf where no alignment exists.

    Only the logits of an output's own symbols are computed.
    """
    symbols = own_symbols(target, model.blank)
    own_logits = torch.einsum(
        "bnd,bud->bnu", wide(states.hidden), wide(F.embedding(symbols, model.target_embedding.weight))
    )
    emissions = own_logits + wide(model.output_bias)[symbols][:, None] - states.normalisers[..., None]
    lattice = Lattice(target, states.mask.sum(1))
    total, _ = occupancies(emissions * states.mask[..., None], lattice)
    return torch.where(lattice.reachable, total, float("-inf"))
