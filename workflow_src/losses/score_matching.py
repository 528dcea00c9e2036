"""Training of score and energy networks (Lee et al. 2020, equation 4), the latent-variable model frozen.

z ~ p(z|x), its goal z~ is k delta steps further, and with s = -grad E (or the score network's output)
    |s|^2 - 2 s . (z~ - z)      is the squared error |s - (z~ - z)|^2 up to a constant,
averaged here over real positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from workflow_src.decoding.refinement import delta_goal
from workflow_src.losses.draws import normal, number_of, sentence_keys, uniform
from workflow_src.losses.settings import ScoreMatchingConfig
from workflow_src.nn.layers import Memory
from workflow_src.nn.models import Refiner
from workflow_src.types import Batch, LossTerms, TrainingContext

# Streams of random numbers: of the noise, of its scale, and of whether an own step is made.
NOISE, SCALE, OWN_STEP = range(3)


def score_matching(model: Refiner, batch: Batch, context: TrainingContext, config: ScoreMatchingConfig) -> LossTerms:
    """`context.frozen` is the latent-variable model, in evaluation mode."""
    mask = context.frozen.batch_mask(batch)
    z, goal, memory = latents_and_goals(model, batch, mask, context, config)
    direction = model.direction(memory, z, mask, differentiable=True)
    offset = goal - z
    count = int(context.frozen.batch_mask(batch.on_cpu).sum())
    squares = (direction**2).sum(-1)
    products = (direction * offset).sum(-1)
    loss = ((squares - 2 * products) * mask).sum() / count
    error = ((direction.detach() - offset) ** 2).sum(-1)
    agreement = cosine(direction.detach(), offset, mask)
    return LossTerms(
        loss,
        count,
        {
            "squared_error": (error * mask).sum() / count,
            "cosine": (agreement.nansum(), (~agreement.isnan()).sum()),
            "offset_norm": (offset.norm(dim=-1) * mask).sum() / count,
        },
    )


@torch.no_grad()
def latents_and_goals(
    model: Refiner, batch: Batch, mask: Tensor, context: TrainingContext, config: ScoreMatchingConfig
) -> tuple[Tensor, Tensor, Memory]:
    """z (B, T, Z) at the positions of `mask`, its goal after delta steps, and the source states."""
    frozen, keys = context.frozen, sentence_keys(batch, context.seed)
    memory = frozen.encode(batch.source)
    mean, deviation = frozen.prior(memory, mask)
    noise = normal(keys, tuple(mean.shape[1:]), NOISE).to(mean)
    of_sentences = config.noise_scale == "sentence"
    scale = uniform(keys, (1, 1), SCALE).to(mean) if of_sentences else number_of(context.seed, SCALE)
    z = mean + scale**config.noise_power * deviation * noise
    chance = number_of(context.seed, OWN_STEP)
    if context.progress >= config.pre_update_after and chance < config.pre_update_probability:
        was_training = model.training
        model.eval()
        z = z + config.step_size * model.direction(memory, z, mask).detach()
        model.train(was_training)
    goal = delta_goal(frozen, memory, z, mask, config.delta_steps)
    return z, goal, memory


def cosine(direction: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
    """Cosine between (B, T, Z) fields, each sentence's real positions taken as one vector: (B,), NaN where offset is 0.

    A sentence that delta does not move has no direction to agree with; means leave it out (`nanmean`).
    """
    weights = mask[..., None]
    a, b = (direction * weights).flatten(1), (offset * weights).flatten(1)
    agreement = torch.nn.functional.cosine_similarity(a, b, dim=1)
    return torch.where(b.norm(dim=1) > 0, agreement, torch.nan)
