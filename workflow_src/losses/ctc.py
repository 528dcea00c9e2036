"""Connectionist temporal classification (Graves et al. 2006) in batched tensor code, for CPUs and GPUs.

N slots put out a symbol or the blank each; a target y is read off by merging equal neighbours and dropping blanks:
    log p(y|x) = log sum over alignments a of y of prod_n p(a_n|x)                (Gu & Kong 2021, equation 4)

The recursions run over 2T + 1 states: blanks at even places, the target's tokens at odd ones. They need only the
probabilities of a sentence's own T + 1 symbols, so that no tensor has a cell for each slot and word of the vocabulary.
Shapes: B sentences, N slots, T target positions, U = T + 1 own symbols (the blank first), V vocabulary, D width.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from workflow_src.losses.aligned import Aligned, aligned_loss, own_symbols
from workflow_src.losses.common import Cells
from workflow_src.types import PAD

# The logarithm of "never": finite, so that sums and differences of it are no NaN.
NEVER = -1e30


@dataclasses.dataclass(frozen=True)
class Lattice:
    """Which alignments exist of targets (B, T) over `slots` (B,) slots a sentence."""

    target: Tensor
    slots: Tensor

    @property
    def lengths(self) -> Tensor:
        return (self.target != PAD).sum(1)

    @property
    def repeats(self) -> Tensor:
        """(B, T), True where a token equals the one before it: a blank must part them."""
        equal = (self.target[:, 1:] == self.target[:, :-1]) & (self.target[:, 1:] != PAD)
        return F.pad(equal, (1, 0))

    @property
    def reachable(self) -> Tensor:
        """(B,), True where the slots suffice: one for each token, and one for each blank between equal neighbours."""
        return self.lengths + self.repeats.sum(1) <= self.slots

    def states(self, emissions: Tensor) -> Tensor:
        """Log-probabilities of own symbols (B, N, U) as those of states (N, B, 2T + 1)."""
        blank, tokens = emissions[..., :1], emissions[..., 1:]
        pairs = torch.stack([tokens, blank.expand_as(tokens)], -1).flatten(-2)
        return torch.cat([blank, pairs], -1).transpose(0, 1).contiguous()

    def skips(self, like: Tensor) -> Tensor:
        """(B, 2T + 1): 0 where a path may come from two states before, else NEVER."""
        B, T = self.target.shape
        allowed = torch.zeros(B, 2 * T + 1, dtype=torch.bool, device=like.device)
        allowed[:, 3::2] = ~self.repeats[:, 1:]
        return torch.zeros_like(allowed, dtype=like.dtype).masked_fill_(~allowed, NEVER)

    def last(self, like: Tensor) -> Tensor:
        """(B, 2T + 1): 0 at the states in which a path may end, the last token and the blank after it, else NEVER."""
        state = torch.arange(2 * self.target.size(1) + 1, device=like.device)
        end = 2 * self.lengths[:, None]
        final = (state == end) | ((state == end - 1) & (end > 0))
        return torch.zeros(final.shape, dtype=like.dtype, device=like.device).masked_fill_(~final, NEVER)

    def first(self, like: Tensor) -> Tensor:
        """(B, 2T + 1): 0 at the first blank and the first token, else NEVER."""
        start = like.new_full((self.target.size(0), 2 * self.target.size(1) + 1), NEVER)
        start[:, :2] = 0
        return start


def occupancies(emissions: Tensor, lattice: Lattice) -> tuple[Tensor, Tensor]:
    """Forward-backward recursions over log-probabilities of own symbols (B, N, U), the blank first.

    Returns log p(y|x) (B,), far below any probability where no alignment exists, and the expected share (B, N, U) that
    each own symbol has of each slot; rows of real slots sum to 1 where an alignment exists, all others are 0.
    """
    scores = lattice.states(emissions)
    skips, slots = lattice.skips(scores), lattice.slots
    first, last = lattice.first(scores), lattice.last(scores)
    count, sentences = scores.size(0), scores.size(1)
    forward = torch.empty_like(scores)
    alpha = forward[0] = first + scores[0]
    for n in range(1, count):
        moved = F.pad(alpha, (2, 0), value=NEVER)
        alpha = torch.logaddexp(torch.logaddexp(alpha, moved[:, 1:-1]), moved[:, :-2] + skips) + scores[n]
        forward[n] = alpha
    ends = (slots - 1).clamp(min=0)
    total = (forward[ends, torch.arange(sentences, device=ends.device)] + last).logsumexp(-1)
    # A path goes two states on where the state it arrives in may be reached so.
    onward = F.pad(skips[:, 2:], (0, 2), value=NEVER)
    backward = torch.empty_like(scores)
    beta = backward[count - 1] = last
    for n in range(count - 2, -1, -1):
        ahead = F.pad(beta + scores[n + 1], (0, 2), value=NEVER)
        beta = torch.logaddexp(torch.logaddexp(ahead[:, :-2], ahead[:, 1:-1]), ahead[:, 2:] + onward)
        beta = backward[n] = torch.where((n >= ends)[:, None], last, beta)
    real = torch.arange(count, device=slots.device)[:, None] < slots
    real = real & (total > NEVER / 2)
    shares = ((forward + backward - total[:, None]).clamp(max=0).exp() * real[..., None]).transpose(0, 1)
    return total, torch.cat([shares[..., ::2].sum(-1, keepdim=True), shares[..., 1::2]], -1)


def viterbi(emissions: Tensor, lattice: Lattice) -> Tensor:
    """The most probable alignment: the own symbol at each slot, (B, N) int64 in [0, U), 0 the blank.

    Slots beyond a sentence's own, and all slots of sentences that have no alignment, hold the blank.
    """
    scores = lattice.states(emissions)
    skips, ends = lattice.skips(scores), (lattice.slots - 1).clamp(min=0)
    last = lattice.last(scores)
    count = scores.size(0)
    best = lattice.first(scores) + scores[0]
    came = torch.zeros(scores.shape, dtype=torch.int64, device=scores.device)
    state = (best + last).argmax(-1)
    for n in range(1, count):
        moved = F.pad(best, (2, 0), value=NEVER)
        choices = torch.stack([best, moved[:, 1:-1], moved[:, :-2] + skips])
        best, came[n] = choices.max(0)
        best = best + scores[n]
        state = torch.where(ends == n, (best + last).argmax(-1), state)
    path = torch.empty(count, scores.size(1), dtype=torch.int64, device=scores.device)
    for n in range(count - 1, -1, -1):
        path[n] = torch.where(n <= ends, state, 0)
        back = came[n].gather(1, state[:, None])[:, 0]
        state = torch.where(n <= ends, state - back, state)
    symbols = torch.where(path % 2 == 1, (path + 1) // 2, 0).T
    return symbols * lattice.reachable[:, None]


def ctc_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor,
    target: Tensor,
    blank: int,
    real: Cells | None = None,
) -> tuple[Tensor, Tensor]:
    """-log p(y|x) in nats, (B,), and which sentences have an alignment at all, (B,) bool; the others' loss is 0.

    hidden (B, N, D) at slots where mask (B, N) is True (the first of each sentence), output projection weight (V, D)
    and bias (V,), target (B, T) padded. Gradients, softmax minus expected shares, are computed a block of rows at a
    time, so that logits are never held for all slots at once. `real` are the cells of the mask, where they are known.
    """
    lattice = Lattice(target, mask.sum(1))

    def align(emissions: Tensor) -> Aligned:
        total, shares = occupancies(emissions, lattice)
        return Aligned(torch.where(lattice.reachable, -total, 0.0), shares, lattice.reachable)

    return aligned_loss(hidden, weight, bias, mask, own_symbols(target, blank), align, real), lattice.reachable
