"""The latent-variable model's loss (Lee et al. 2020, section 2.2; free bits of Shu et al. 2020).

Summed over a batch and divided by its target positions (an end symbol counts where the model's targets have one):
    label-smoothed reconstruction  +  sum_t max(b, KL_t)  +  length loss
with z ~ q(z|y,x), one sample a sentence; KL_t sums over the latent's Z dimensions at one position; b is the budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workflow_src.losses.common import budget, length_loss, smoothed_cross_entropy
from workflow_src.losses.draws import sentence_keys
from workflow_src.losses.latents import sampled_latents
from workflow_src.losses.settings import ElboConfig
from workflow_src.types import Batch, LossTerms, TrainingContext

if TYPE_CHECKING:
    from workflow_src.families.lvm.model import LatentVariableModel


def elbo_loss(model: LatentVariableModel, batch: Batch, context: TrainingContext, config: ElboConfig) -> LossTerms:
    memory = model.encode(batch.source)
    z, kl = sampled_latents(model, memory, batch, sentence_keys(batch, context.seed))
    hidden = model.hidden(memory, z, model.batch_mask(batch))
    real = batch.cells(batch.target_lengths + model.extra_positions)
    labels = model.whole_target(batch.target)[real]
    reconstruction, nll = smoothed_cross_entropy(
        hidden[real], model.target_embedding.weight, model.output_bias, labels, config.label_smoothing
    )
    kl = kl[real]
    free = budget(config, context.progress)
    length, exact = length_loss(model.length, memory, batch, config.length_smoothing)
    tokens = labels.numel()
    total = reconstruction + kl.clamp(min=free).sum() + config.length_weight * length
    return LossTerms(
        total / tokens,
        tokens,
        {
            "nll": nll / tokens,
            "kl": kl.detach().mean(),
            "length_nll": (length.detach(), len(batch.target)),
            "length_accuracy": exact,
            "kl_budget": free,
        },
    )
