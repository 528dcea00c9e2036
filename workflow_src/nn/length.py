"""Classifiers of the target length: of |y| - |x|, from source states or from latents of source positions."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.nn.layers import Memory
from workflow_src.nn.widths import beside
from workflow_src.types import wide


@dataclasses.dataclass(frozen=True)
class LengthChoice:
    """The choice of target lengths from their distribution.

    The most probable; with `quantile` in (0, 1), the shortest length that the target exceeds with a probability of at
    most 1 - quantile: 0.5 is the median, more is longer (our addition). `lengthening` times the source's length with a
    start and an end symbol, truncated, is added (the released code of Lee et al. 2020: 0.11 on IWSLT'16, 0.06 on
    WMT'16). `lengths` (B,) in words, such as the references', replace all of it.
    """

    quantile: float | None = None
    lengthening: float = 0.0
    lengths: Tensor | None = None


MOST_PROBABLE = LengthChoice()


class LengthClasses(nn.Module):
    """Base of heads over length differences: classes are the differences -limit … limit.

    Differences beyond the limit count as the limit. Lengths are at least 1 and at most `longest`. Scores are (B, 2 *
    limit + 1), and |x| counts subwords without the end symbol.
    """

    def __init__(self, limit: int, longest: int):
        super().__init__()
        self.limit, self.longest = limit, longest

    def classes(self, memory: Memory, target_lengths: Tensor) -> Tensor:
        """The class (B,) of each sentence's true length."""
        difference = beside(target_lengths, memory) - (memory.mask.sum(1) - 1)
        return difference.clamp(-self.limit, self.limit) + self.limit

    def predict(self, memory: Memory, choice: LengthChoice = MOST_PROBABLE, z: Tensor | None = None) -> Tensor:
        """The target length of each sentence (B,): that of `choice`, or those that are given. Heads that read latents
        need z (B, S, Z)."""
        if choice.lengths is not None:
            return choice.lengths
        scores = self(memory) if z is None else self(memory, z)
        if choice.quantile is None:
            classes = scores.argmax(-1)
        else:
            # Rounding may leave the sum of all probabilities below a quantile close to 1.
            classes = (wide(scores).softmax(-1).cumsum(-1) < choice.quantile).sum(-1).clamp(max=2 * self.limit)
        return self.lengths(classes, memory, choice.lengthening)

    def likely(self, memory: Memory, count: int, lengthening: float = 0.0, z: Tensor | None = None) -> Tensor:
        """The `count` most probable target lengths (B, count), most probable first, different from each other.

        Classes of lengths that do not exist (below 1, or beyond the positions) count as the nearest length that
        does, with the largest score among its classes. Where a sentence has fewer lengths than `count`, the most
        probable one fills up.
        """
        scores = self(memory) if z is None else self(memory, z)
        classes = torch.arange(scores.size(-1), device=scores.device).expand_as(scores)
        lengths = self.lengths(classes, memory, lengthening)
        # Lengths never fall from class to class, so that equal lengths are neighbours.
        groups = F.pad((lengths[:, 1:] != lengths[:, :-1]).cumsum(-1), (1, 0))
        scores_of_groups = scores.new_full(scores.shape, float("-inf")).scatter_reduce(1, groups, scores, "amax")
        most_probable = lengths.gather(1, scores.argmax(-1, keepdim=True))
        lengths_of_groups = most_probable.expand_as(lengths).scatter(1, groups, lengths)
        return lengths_of_groups.gather(1, scores_of_groups.topk(min(count, scores.size(-1)), -1).indices)

    def lengths(self, classes: Tensor, memory: Memory, lengthening: float = 0.0) -> Tensor:
        """Target lengths of classes (B,) or (B, K), at least 1 and at most the model's positions."""
        source_lengths = memory.mask.sum(1) - 1
        if lengthening:
            # Lengths beyond it are cut off below; a huge factor must not overflow.
            most_added = self.longest + self.limit
            # In float32, as there: 0.06 of 50 positions is 3, and not a little less.
            with_symbols = (source_lengths + 2).float()
            source_lengths = source_lengths + (lengthening * with_symbols).clamp(max=most_added).long()
        source_lengths = source_lengths if classes.dim() == 1 else source_lengths[:, None]
        return (classes - self.limit + source_lengths).clamp(1, self.longest)


class LengthHead(LengthClasses):
    """Two linear layers over the pooled source states (Lee et al. 2020, section 4.2).

    `pooling` is the mean, or a mean weighted by a softmax over positions of a linear score of each state ("attention").
    The mean forgets how long the source is, so its length enters as an embedding of its own (our addition).
    """

    def __init__(self, dim: int, limit: int, max_positions: int, longest: int | None = None, pooling: str = "mean"):
        super().__init__(limit, max_positions if longest is None else longest)
        self.source_length = nn.Parameter(torch.zeros(max_positions + 1, dim))
        self.attention = nn.Linear(dim, 1) if pooling == "attention" else None
        self.inner = nn.Linear(dim, dim)
        self.outer = nn.Linear(dim, 2 * limit + 1)

    def forward(self, memory: Memory) -> Tensor:
        """Logits (B, 2 * limit + 1) from source states (B, S, D)."""
        lengths = memory.mask.sum(1)
        if self.attention is None:
            pooled = (memory.states * memory.mask[..., None]).sum(1) / lengths[:, None]
        else:
            scores = wide(self.attention(memory.states)[..., 0]).masked_fill(~memory.mask, float("-inf"))
            pooled = (memory.states * scores.softmax(-1).to(memory.states)[..., None]).sum(1)
        return self.outer(F.relu(self.inner(pooled + self.source_length[lengths])))


class LatentLengthHead(LengthClasses):
    """A linear layer over the mean latent of a sentence (Shu et al. 2020, section 3.2): p(l | z).

    With `projection`, that of latents to the decoder's width D, it is over the mean of the source states with projected
    latents added, as in the authors' released code: p(l | z, x).
    """

    def __init__(self, latent_dim: int, limit: int, longest: int, projection: nn.Linear | None = None):
        super().__init__(limit, longest)
        self.projection = projection
        self.linear = nn.Linear(latent_dim if projection is None else projection.out_features, 2 * limit + 1)

    def forward(self, memory: Memory, z: Tensor) -> Tensor:
        """Logits (B, 2 * limit + 1) from latents (B, S, Z)."""
        states = z
        if self.projection is not None:
            states = memory.states + self.projection(z.to(self.projection.weight.dtype))
        weights = memory.mask[..., None].to(states.dtype)
        return self.linear(((states * weights).sum(1) / weights.sum(1)).to(self.linear.weight.dtype))
