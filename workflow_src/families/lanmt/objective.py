"""The loss of the model with latents of the source's length (Shu et al. 2020, equations 5, 9 and 10).

Summed over a batch and divided by its target positions, end symbols counted:
    label-smoothed reconstruction  +  length loss  +  sum_k max(b, KL_k)
with z ~ q(z|x,y), one sample a sentence, from which the length is predicted too; KL_k sums over the latent's Z
dimensions at one source position; b is the budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from workflow_src.losses.common import budget, length_cross_entropy, smoothed_cross_entropy
from workflow_src.losses.draws import sentence_keys
from workflow_src.losses.latents import sampled_latents
from workflow_src.losses.settings import ElboConfig
from workflow_src.types import Batch, LossTerms, Mean, TrainingContext, with_end

if TYPE_CHECKING:
    from workflow_src.families.lanmt.model import SourceLatentVariableModel


def elbo_loss(
    model: SourceLatentVariableModel, batch: Batch, context: TrainingContext, config: ElboConfig
) -> LossTerms:
    keys = sentence_keys(batch, context.seed)
    memory = model.encode(batch.source)
    z, kl = sampled_latents(model, memory, batch, keys)
    positions = batch.target_lengths + model.extra_positions
    hidden, mask = model.hidden(memory, z, positions)
    real = batch.cells(positions)
    labels = with_end(batch.target)[:, : mask.size(1)][real]
    reconstruction, nll = smoothed_cross_entropy(
        hidden[real], model.target_embedding.weight, model.output_bias, labels, config.label_smoothing
    )
    classes = model.length.classes(memory, batch.target_lengths)
    length, exact = length_cross_entropy(model.length(memory, z), classes, config.length_smoothing)
    free, count = budget(config, context.progress), labels.numel()
    total = reconstruction + config.length_weight * length + kl.clamp(min=free).sum()
    figures: dict[str, float | Tensor | Mean] = {
        "nll": nll / count,
        "kl": (kl.detach().sum(), len(kl)),
        "length_nll": (length.detach(), len(batch.target)),
        "length_accuracy": exact,
        "kl_budget": free,
        "sigma": model.transformation.log_sigma.detach().exp(),
    }
    return LossTerms(total / count, count, figures)
