"""Marginal log-probability of the outputs of every refinement procedure, step by step (Lee et al. 2020, Figure 1)."""

from typing import Annotated

from pydantic import Field

from workflow_src.config.plan.selection import refining
from workflow_src.evaluation.analyses.content import Curves, GainPoint, Steps
from workflow_src.spec import TARGET_LATENT, Analysis, AnalysisSettings, Use


class MarginalSettings(AnalysisSettings):
    sentences: int = Field(20, gt=0, description="first sentences of dev")
    samples: int = Field(50, gt=1, description="draws of z for each output; the paper's are 500")
    steps: Steps = Field((1, 2, 4), min_length=1, description="beside 0, the prior mean")
    seed: int = Field(1, ge=0)
    chunk: Annotated[int, Use.LIMIT] = Field(100, gt=0, description="samples decoded together")


class MarginalPoint(GainPoint):
    """log p(y|x) in nats a sentence, the mean over sentences.

    `error` is its standard error from sampling z, `spread` that over sentences.
    """

    log_probability: float
    error: float
    spread: float
    effective_samples: float


class Marginal(Curves[MarginalPoint]):
    """Marginal log-probability of outputs of procedures; `samples` are the draws of z for each output."""

    samples: int


ANALYSIS = Analysis(
    name="marginal",
    title="Marginal log-probability",
    settings=MarginalSettings,
    select=refining(TARGET_LATENT),
    needs="it follows refinement of latents of target positions",
    measure="workflow_src.evaluation.analyses.marginal.measure:measure",
    content=Marginal,
    show="workflow_src.evaluation.analyses.marginal.show:show",
    split="dev",
    rule="estimate_marginal",
    message="Estimating the marginal log-probability of every procedure's outputs",
    # Steps differ by less than bfloat16 resolves.
    float32=True,
    hours=4,
    order=1,
)
