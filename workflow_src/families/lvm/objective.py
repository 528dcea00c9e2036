"""The latent-variable model's loss (Lee et al. 2020, section 2.2; free bits of Shu et al. 2020).

Summed over a batch and divided by its target positions (an end symbol counts where the model's targets have one):
    label-smoothed reconstruction  +  sum_t max(b, KL_t)  +  length loss
with z ~ q(z|y,x), one sample a sentence; KL_t sums over the latent's Z dimensions at one position; b is the budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workflow_src.losses.common import budget, gaussian_kl, length_loss, smoothed_cross_entropy
from workflow_src.losses.draws import normal, sentence_keys
from workflow_src.losses.settings import ElboConfig
from workflow_src.types import PAD, Batch, LossTerms, TrainingContext

if TYPE_CHECKING:
    from workflow_src.families.lvm.model import LatentVariableModel


def elbo_loss(model: LatentVariableModel, batch: Batch, context: TrainingContext, config: ElboConfig) -> LossTerms:
    target = model.whole_target(batch.target)
    mask = target != PAD
    memory = model.encode(batch.source)
    mean_p, deviation_p = model.prior(memory, mask)
    mean_q, deviation_q = model.posterior(memory, target, mask)
    noise = normal(sentence_keys(batch, context.seed), tuple(mean_q.shape[1:])).to(mean_q)
    hidden = model.hidden(memory, mean_q + deviation_q * noise, mask)
    real = batch.cells(batch.target_lengths + model.extra_positions)
    labels = target[real]
    reconstruction, nll = smoothed_cross_entropy(
        hidden[real], model.target_embedding.weight, model.output_bias, labels, config.label_smoothing
    )
    kl = gaussian_kl(mean_q, deviation_q, mean_p, deviation_p)[real]
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
