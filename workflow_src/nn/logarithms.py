"""Exponentials of logarithms of which most are very low: those of paths, of alignments and of transitions.

On CPUs, `torch.exp` takes up to 150 times as long where its result is below the smallest normal number.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

# The logarithm of "never": finite, so that sums and differences of it are no NaN.
NEVER = -1e30

# Below it e^x is taken for 0: a number of float32 that is still normal after a product with a probability of 0.01.
LOWEST = -80.0
# What LOWEST itself becomes, whatever its rounding.
LEAST = 1.01 * math.exp(LOWEST)


def exp(logarithms: Tensor) -> Tensor:
    """e^x, 0 where x is below -80 or nearly so."""
    powers = logarithms.clamp(min=LOWEST).exp_()
    return F.threshold(powers, LEAST, 0.0, inplace=not powers.requires_grad)


def logsumexp(logarithms: Tensor) -> Tensor:
    """log of the sum of e^x over the last axis, of finite x. What is 80 below the largest adds nothing."""
    most = logarithms.amax(-1, keepdim=True).detach()
    return (most + exp(logarithms - most).sum(-1, keepdim=True).log())[..., 0]
