"""First weights of networks that move latents, and their figures on dev."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workflow_src.decoding.latent import batch_mask, draw_noise, prior_of
from workflow_src.decoding.refinement import DeltaStep, gradient_step, refine, translate_batch
from workflow_src.losses.score_matching import cosine
from workflow_src.losses.settings import ScoreMatchingConfig
from workflow_src.nn.latent_stack import LatentStack
from workflow_src.nn.weights import copy_matching, weights_of
from workflow_src.registry import families
from workflow_src.spec import LATENT
from workflow_src.types import Batch, DevSet, LatentModel, Refiner, SourceLatentModel, Validation


def start(
    model: LatentStack, tensors: dict[str, Tensor] | None, family: str | None, base: nn.Module
) -> list[str] | None:
    """Start from the decoder of a latent-variable model (the base, where no tensors are given), from a network's own
    weights, or at random; returns the names of the parameters that were set, None for a random start."""
    if tensors is None:
        return None if model.config.start == "random" else model.start_from_base(weights_of(base))
    of_a_base = family is not None and LATENT in families()[family].traits
    return model.start_from_base(tensors) if of_a_base else copy_matching(model, tensors)


def validate(dev: DevSet, objective: ScoreMatchingConfig, frozen: LatentModel | SourceLatentModel) -> Validation:
    """Cosine between direction and delta's offset at full noise and at the prior mean, and BLEU after one step."""

    def figures(model: Refiner) -> dict[str, float]:
        generator = dev.generator()
        results = dev.over_batches(
            lambda batch: _agreement(model, frozen, batch, objective, generator, moved=dev.group.size > 1),
            lambda batch: draw_noise(batch, frozen, generator),
        )
        # Joined over all sentences, so that batches of any size count alike; unmoved sentences (NaN) are left out.
        joined = {name: torch.cat([of_batch[name] for of_batch in results]).nanmean() for name in results[0]}

        def step(memory, mask):
            return gradient_step(model, memory, mask, objective.step_size)

        bleu = dev.bleu(lambda source: translate_batch(frozen, source, step, 1))
        return {name: float(value.nan_to_num()) for name, value in joined.items()} | {"dev_bleu": bleu}

    return Validation(figures, "dev_cosine_noise0")


@torch.no_grad()
def _agreement(
    model: Refiner,
    frozen: LatentModel | SourceLatentModel,
    batch: Batch,
    objective: ScoreMatchingConfig,
    generator: torch.Generator,
    moved: bool = False,
) -> dict[str, Tensor]:
    """Cosines a sentence (B,); squared error and offset length a position (N,), at full noise and at none.

    They are `moved` to the CPU for other processes.
    """
    mask = batch_mask(frozen, batch)
    memory = frozen.encode(batch.source)
    mean, deviation = prior_of(frozen, memory, mask)
    noise = torch.randn(mean.shape, generator=generator, device=mean.device)
    result = {}
    for name, z in (("", mean + deviation * noise), ("_noise0", mean)):
        offset = refine(z, DeltaStep(frozen, memory, mask), objective.delta_steps) - z
        direction = model.direction(memory, z, mask)
        result[f"dev_cosine{name}"] = cosine(direction, offset, mask)
        result[f"dev_squared_error{name}"] = ((direction - offset) ** 2).sum(-1)[mask]
        result[f"dev_offset_norm{name}"] = offset.norm(dim=-1)[mask]
    return {name: tensor.cpu() for name, tensor in result.items()} if moved else result
