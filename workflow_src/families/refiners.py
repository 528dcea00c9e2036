"""First weights of networks that move latents, and their figures on dev."""

from __future__ import annotations

from torch import Tensor, nn

from workflow_src.decoding.refinement import delta_goal
from workflow_src.decoding.search import open_search
from workflow_src.losses.draws import normal
from workflow_src.losses.score_matching import cosine
from workflow_src.losses.settings import ScoreMatchingConfig
from workflow_src.nn.latent_stack import LatentStack
from workflow_src.nn.models import LatentModel, Refiner
from workflow_src.nn.weights import copy_matching, weights_of
from workflow_src.registry import families, searches
from workflow_src.spec import LATENT, MODEL, REFINER
from workflow_src.types import Batch, DevFigures, Hypotheses, Measured


def start(
    model: LatentStack, tensors: dict[str, Tensor] | None, family: str | None, base: nn.Module
) -> list[str] | None:
    """Start from the decoder of a latent-variable model (the base, where no tensors are given), from a network's own
    weights, or at random; returns the names of the parameters that were set, None for a random start."""
    if tensors is None:
        return None if model.config.start == "random" else model.start_from_base(weights_of(base))
    of_a_base = family is not None and LATENT in families()[family].traits
    return model.start_from_base(tensors) if of_a_base else copy_matching(model, tensors)


def validate(config: ScoreMatchingConfig, frozen: LatentModel) -> DevFigures:
    """Cosine between direction and delta's offset at full noise and at the prior mean, and BLEU after one step.

    Cosines are means over sentences that delta moves; squared errors and lengths of offsets are means over positions.
    """

    def measure(model: Refiner, batch: Batch, keys: Tensor) -> Measured:
        mask = frozen.batch_mask(batch)
        memory = frozen.encode(batch.source)
        mean, deviation = frozen.prior(memory, mask)
        noise = normal(keys, tuple(mean.shape[1:])).to(mean)
        means = {}
        for name, z in (("", mean + deviation * noise), ("_noise0", mean)):
            offset = delta_goal(frozen, memory, z, mask, config.delta_steps) - z
            direction = model.direction(memory, z, mask)
            cosines = cosine(direction, offset, mask)
            means[f"dev_cosine{name}"] = cosines.nansum(), (~cosines.isnan()).sum()
            means[f"dev_squared_error{name}"] = ((direction - offset) ** 2).sum(-1)[mask].sum(), mask.sum()
            means[f"dev_offset_norm{name}"] = offset.norm(dim=-1)[mask].sum(), mask.sum()
        return Measured(means)

    def after_a_step(model: Refiner, source: Tensor) -> Hypotheses:
        settings = searches()["score"].settings.model_validate({"steps": 1, "step_size": config.step_size})
        return open_search({MODEL: frozen, REFINER: model}, settings, scored=False).translate(source)

    return DevFigures(measure, {"dev_bleu": after_a_step}, "dev_cosine_noise0")
