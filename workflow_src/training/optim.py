"""Optimiser and learning-rate schedules."""

from __future__ import annotations

import torch

from workflow_src.config.experiment import TrainingConfig


def learning_rate(config: TrainingConfig, step: int) -> float:
    """Rate of update `step`, counted from 0.

    Both schedules rise linearly for `warmup_steps`. inverse-sqrt then falls as 1/sqrt(step) (Vaswani et al. 2017,
    section 5.3); polynomial is multiplied throughout by (1 - step / max_steps) ** decay_power and ends at 0.
    """
    number = step + 1
    rising = min(1.0, number / config.warmup_steps) if config.warmup_steps else 1.0
    if config.schedule == "polynomial":
        return config.learning_rate * rising * (1 - step / config.max_steps) ** config.decay_power
    if number <= config.warmup_steps:
        return config.learning_rate * rising
    return config.learning_rate * (max(1, config.warmup_steps) / number) ** 0.5


def make_optimiser(model: torch.nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Fused AdamW over all parameters (Adam where weight_decay is 0)."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )
