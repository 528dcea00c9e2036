"""Where latents go under refinement: how far, how probable they are, and whether they go where a delta step goes.

A path z_0, z_1, … begins at the prior mean, and y_L is what z_L decodes to; `Place` has what is measured of every z_L.
Score and energy networks learn to step where delta inference goes (Lee et al. 2020, equation 4; one step of it here):
the cosine with the delta step measures how far they do.

Latents of source positions are followed as a search moves them. Those of target positions are followed at the
reference's length, because a posterior that reads the reference has latents at the reference's positions alone.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from workflow_src.decoding.candidates import unpadded
from workflow_src.decoding.refinement import Refinement
from workflow_src.evaluation.analyses.inputs import BATCH, Inputs, inspected_steps, standard_error
from workflow_src.evaluation.analyses.latent_paths import LatentPathsSettings
from workflow_src.evaluation.analyses.networks import entry_settings, paired_batches, refinement
from workflow_src.jobs import log
from workflow_src.losses.score_matching import cosine
from workflow_src.nn.models import LatentModel
from workflow_src.types import Batch

# Steps with a smaller mean length are rounding, without a meaningful direction.
STILL = 1e-5


def measure(inputs: Inputs, settings: LatentPathsSettings) -> dict[str, Any]:
    sentences, steps = inputs.sentences(settings.sentences), inspected_steps(settings.steps)
    rows: list[dict[str, Any]] = []
    for entry in inputs.searches:
        translator, search = inputs.translator(entry["system"]), entry_settings(entry, steps[-1])
        subwords = translator.subwords
        paths = follow(
            refinement(translator, search),
            subwords.encode_source(sentences.sources),
            subwords.encode_target(sentences.targets, sentences.sources),
            steps[-1],
            BATCH,
            translator.runtime.device,
        )
        rows += [entry | point(step, [path[step] for path in paths]) for step in steps]
        log.info("%s of %s: %d sentences", entry["search"], entry["system"], len(paths))
    return {"sentences": len(sentences.sources), "rows": rows}


@dataclasses.dataclass(frozen=True)
class Place:
    """The latents of one sentence after L steps.

    Distances are Euclidean norms of a position's latent, log-densities are in nats a position (summed over its Z
    dimensions); both are means over the sentence's positions. The cosine takes all positions as one vector.

    from_start      distance of z_L from z_0, the prior mean
    step            distance of z_L from z_{L-1}; None at L = 0
    from_reference  distance of z_L from the mean of q(z|x,y) of the reference y
    log_prior       log p(z_L|x)
    log_posterior   log q(z_L|x,y_L), y_L being what z_L decodes to
    cosine          between z_L - z_{L-1} and the delta step from z_{L-1}; None at L = 0 and where either stands still
    changed         whether y_L differs from y_{L-1} (end symbols are no words); None at L = 0
    """

    from_start: float
    step: float | None
    from_reference: float
    log_prior: float
    log_posterior: float
    cosine: float | None
    changed: bool | None


@torch.no_grad()
def follow(
    search: Refinement,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    steps: int,
    batch: int,
    device: torch.device,
) -> list[list[Place]]:
    """paths[sentence][L] for L = 0 … `steps`, of the pairs of `paired_batches`, the targets being the references."""
    compute = functools.partial(followed, search, steps)
    return paired_batches(search.model, compute, sources, targets, batch, device)


@torch.no_grad()
def followed(search: Refinement, steps: int, source: Tensor, target: Tensor) -> list[list[Place]]:
    """`follow` of one batch: source (B, S) with end symbols and target (B, T) without, both padded."""
    model: LatentModel = search.model
    memory, mask = model.encode(source), model.batch_mask(Batch(source, target))
    mean, deviation = model.prior(memory, mask)
    reference, _ = model.posterior(memory, model.whole_target(target), mask)
    z = mean
    columns, before = [], None
    for number in range(steps + 1):
        outputs, _ = model.read(memory, z, mask)
        # Its mean is also where a delta step from z leads.
        posterior = model.posterior(memory, outputs, mask)
        now = _State(z, posterior[0], unpadded(outputs))
        columns.append(
            {
                "from_start": _distance(z, mean, mask).tolist(),
                "from_reference": _distance(z, reference, mask).tolist(),
                "log_prior": log_density(z, mean, deviation, mask).tolist(),
                "log_posterior": log_density(z, *posterior, mask).tolist(),
                **_step_figures(before, now, mask),
            }
        )
        before = now
        if number < steps:
            z = search.moved(memory, z, mask)
    return [
        [Place(**{name: values[row] for name, values in column.items()}) for column in columns]
        for row in range(len(source))
    ]


@dataclasses.dataclass(frozen=True)
class _State:
    """Latents z (B, P, Z), the mean (B, P, Z) of the posterior given their outputs, and these outputs."""

    z: Tensor
    goal: Tensor
    words: list[list[int]]


def _step_figures(before: _State | None, now: _State, mask: Tensor) -> dict[str, Sequence[Any]]:
    """Figures of a step for each sentence: its length, agreement with the delta step, whether outputs changed."""
    if before is None:
        return dict.fromkeys(("step", "cosine", "changed"), [None] * len(now.words))
    step, delta = now.z.double() - before.z.double(), before.goal.double() - before.z.double()
    length = _distance(now.z, before.z, mask)
    moving = (length >= STILL) & (_distance(before.goal, before.z, mask) >= STILL)
    agreement = cosine(step, delta, mask).tolist()
    return {
        "step": length.tolist(),
        "cosine": [value if moves else None for value, moves in zip(agreement, moving.tolist(), strict=True)],
        "changed": [old != new for old, new in zip(before.words, now.words, strict=True)],
    }


def _distance(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """The mean (B,) over the positions of mask (B, P) of |a - b|, of latents (B, P, Z)."""
    return _mean((a.double() - b.double()).norm(dim=-1), mask)


def log_density(z: Tensor, mean: Tensor, deviation: Tensor, mask: Tensor) -> Tensor:
    """log N(z; mean, deviation²) of latents (B, P, Z), (B,): nats a position, the mean over those of mask (B, P)."""
    z, mean, deviation = z.double(), mean.double(), deviation.double()
    cells = -0.5 * ((z - mean) / deviation) ** 2 - deviation.log() - 0.5 * math.log(2 * math.pi)
    return _mean(cells.sum(-1), mask)


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean (B,) of values (B, P) over the positions of mask (B, P)."""
    return torch.where(mask, values, 0.0).sum(1) / mask.sum(1)


def point(steps: int, places: Sequence[Place]) -> dict[str, Any]:
    """Means over sentences of the figures of `Place`, each with its standard error."""
    figures: dict[str, Any] = {"steps": steps}
    for field in dataclasses.fields(Place):
        values = [float(value) for place in places if (value := getattr(place, field.name)) is not None]
        figures[field.name] = statistics.fmean(values) if values else None
        figures[f"{field.name}_error"] = standard_error(values) if values else None
    return figures | {"moving": sum(place.cosine is not None for place in places)}
