"""Glancing: symbols of the reference at the decoder's input in training (Ghazvininejad et al. 2019; Qian et al. 2021).

A first pass without gradient, with the dropout of the update's own pass, gives the model's symbols. Where slots and
target positions are the same (axe, ce), the reference has its symbols at its own positions; with CTC at those of the
Viterbi alignment, blanks included (Gu & Kong 2021, section 3.4). D symbols of a sentence are wrong, and
    glat    l = share x D, rounded down, or l ~ Poisson(share x D)      (equation 5)
    random  l of 0 … N - 1, all as likely
of its N slots are shown, any of them as likely.
"""

from __future__ import annotations

import torch
from torch import Tensor

from workflow_src.families.nat import NatObjectiveConfig
from workflow_src.families.nat.model import NonAutoregressiveModel
from workflow_src.losses.aligned import own_emissions, own_symbols
from workflow_src.losses.ctc import Lattice, viterbi
from workflow_src.losses.draws import COUNT, WHICH, subset, uniform
from workflow_src.nn.copying import NOT_SHOWN
from workflow_src.nn.layers import Memory
from workflow_src.nn.widths import beside, largest
from workflow_src.types import Cells


@torch.no_grad()
def shown_symbols(
    config: NatObjectiveConfig,
    model: NonAutoregressiveModel,
    memory: Memory,
    slots: Tensor,
    z: Tensor | None,
    target: Tensor,
    keys: Tensor,
    glanced_share: float,
    real: Cells | None = None,
) -> Tensor | None:
    """Symbols (B, N) that are shown, NOT_SHOWN elsewhere; None where glancing shows nothing.

    slots (B,) of each sentence, target (B, T), random keys (B,) of sentences; `glanced_share` is that of the wrong
    symbols. `real` are the cells of real slots; without them, the CPU waits to read the mask.
    """
    if config.glance == "none" or (config.glance == "glat" and glanced_share == 0):
        return None
    reference, wrong = _reference(config, model, memory, slots, z, target, real)
    slots = beside(slots, memory)
    numbers = uniform(keys, (1,), COUNT)[:, 0]
    if config.glance == "random":
        count = (numbers * slots).floor()
    elif config.glance_count == "share":
        # Rounding may leave a product such as 0.3 * 10 below its whole number.
        count = (glanced_share * wrong.double() + 1e-9).floor()
    else:
        count = poisson(glanced_share * wrong.double(), numbers, reference.size(1))
    return torch.where(subset(keys, slots, count, reference.size(1), WHICH), reference, NOT_SHOWN)


def _reference(
    config: NatObjectiveConfig,
    model: NonAutoregressiveModel,
    memory: Memory,
    slots: Tensor,
    z: Tensor | None,
    target: Tensor,
    real: Cells | None,
) -> tuple[Tensor, Tensor]:
    """The reference's symbol of every slot (B, N), and the number that the model gets wrong (B,)."""
    aligned = model.config.loss == "ctc"
    if config.glance == "random" and not aligned:
        return target[:, : largest(slots, target.size(1), memory)], beside(slots, memory)
    # The update's pass draws the same numbers again, so that both passes drop the same.
    with torch.random.fork_rng([memory.states.device] if memory.states.is_cuda else []):
        hidden, mask = model.hidden(memory, slots, z)
    symbols = own_symbols(target, model.blank)
    weight, bias = model.target_embedding.weight, model.symbol_bias()
    emissions, highest = own_emissions(hidden, weight, bias, mask, symbols, real)
    if aligned:
        own = viterbi(emissions, Lattice(target, beside(slots, memory)))
    else:
        # The blank comes before the target.
        width = min(mask.size(1), target.size(1))
        own = torch.arange(1, width + 1, device=mask.device).expand(len(target), width)
    worse = emissions.gather(2, own[..., None])[..., 0] < highest[:, : own.size(1)]
    return symbols.gather(1, own), (worse & mask[:, : own.size(1)]).sum(1)


def poisson(mean: Tensor, drawn: Tensor, most: int) -> Tensor:
    """Poisson numbers (B,) of means (B,), at most `most`, from uniform numbers (B,) by the distribution's inverse."""
    counts = torch.arange(most, device=mean.device, dtype=torch.float64)
    # P(l <= k) of a Poisson number is the regularised upper incomplete gamma function Q(k + 1, mean).
    below = torch.special.gammaincc(counts + 1, mean.double()[:, None].expand(-1, most))
    return (drawn[:, None] > below).sum(1)
