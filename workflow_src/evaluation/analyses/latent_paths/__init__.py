"""Where latents go under refinement: distances, log-densities, and how far each step is a delta step."""

from pydantic import Field

from workflow_src.config.plan.selection import refining
from workflow_src.evaluation.analyses.content import CurvePoint, Curves, Steps
from workflow_src.spec import LATENT, Analysis, AnalysisSettings
from workflow_src.spec.analyses import Enabled


class LatentPathsSettings(AnalysisSettings):
    enabled: Enabled = False
    sentences: int = Field(100, gt=0, description="first sentences of dev")
    steps: Steps = Field((1, 2, 4, 8), min_length=1, description="beside 0, the prior mean")


class LatentPathsPoint(CurvePoint):
    """Means over sentences of the figures of `measure.Place`; None where no sentence has the figure.

    `moving` counts the sentences that have a cosine.
    """

    from_start: float | None
    from_start_error: float | None
    step: float | None
    step_error: float | None
    from_reference: float | None
    from_reference_error: float | None
    log_prior: float | None
    log_prior_error: float | None
    log_posterior: float | None
    log_posterior_error: float | None
    cosine: float | None
    cosine_error: float | None
    changed: float | None
    changed_error: float | None
    moving: int


class LatentPaths(Curves[LatentPathsPoint]):
    """Curves of the figures of latents over refinement steps."""


ANALYSIS = Analysis(
    name="latent_paths",
    title="Paths of the latents",
    settings=LatentPathsSettings,
    select=refining(LATENT),
    needs="it follows refinement of latents",
    measure="workflow_src.evaluation.analyses.latent_paths.measure:measure",
    content=LatentPaths,
    show="workflow_src.evaluation.analyses.latent_paths.show:show",
    split="dev",
    rule="follow_latents",
    message="Following latents from step to step",
    # Steps differ by less than bfloat16 resolves.
    float32=True,
    order=7,
)
