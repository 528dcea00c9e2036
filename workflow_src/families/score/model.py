"""The score network of Lee et al. 2020, section 3.2: from a latent to the direction of a better one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workflow_src.nn.latent_stack import LatentStack
from workflow_src.nn.layers import Memory, initialise
from workflow_src.nn.settings import RefinerConfig
from workflow_src.types import wide


class ScoreNetwork(LatentStack):
    """The direction itself, (B, T, Z) -> (B, T, Z)."""

    def __init__(self, config: RefinerConfig, *_vocabulary: int):
        super().__init__(config)
        self.head = nn.Linear(config.dim, config.latent_dim)
        initialise(self)
        with torch.no_grad():
            self.head.weight.mul_(0.1)

    def direction(self, memory: Memory, z: Tensor, mask: Tensor, differentiable: bool = False) -> Tensor:
        """The direction (B, T, Z), a plain forward pass: it has gradients also where not `differentiable`."""
        del differentiable
        return wide(self.head(self.hidden(memory, z, mask)))
