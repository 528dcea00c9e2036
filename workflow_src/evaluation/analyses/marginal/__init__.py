"""Marginal log-probability of the outputs of every refinement procedure, step by step (Lee et al. 2020, Figure 1)."""

from typing import Annotated

from pydantic import Field

from workflow_src.config.plan.selection import refining
from workflow_src.evaluation.analyses import RISEN_AND_FALLEN, STEPS, Steps
from workflow_src.spec import TARGET_LATENT, Analysis, AnalysisSettings, Figure, FigureTable, Use


class MarginalSettings(AnalysisSettings):
    sentences: int = Field(20, gt=0, description="first sentences of dev")
    samples: int = Field(50, gt=1, description="draws of z for each output; the paper's are 500")
    steps: Steps = Field((1, 2, 4), min_length=1, description="beside 0, the prior mean")
    seed: int = Field(1, ge=0)
    chunk: Annotated[int, Use.LIMIT] = Field(100, gt=0, description="samples decoded together")


TABLE = FigureTable(
    (
        Figure(
            "log_probability",
            "log p(y|x)",
            digits=2,
            signed=True,
            error="error",
            panel="log p(y|x), nats a sentence",
        ),
        Figure(
            "gain",
            "gain",
            digits=2,
            signed=True,
            error="gain_error",
            panel="gain on the {start}, nats",
            change=True,
        ),
        *RISEN_AND_FALLEN,
        Figure("effective_samples", "effective samples", digits=0),
    ),
    line="Marginal log-probability of what each procedure puts out after L steps, on {scope}.",
    notes={
        "Estimate": "By importance sampling with {samples:,} samples of q(z|y,x), given the length, whose own "
        "probability is left out; the mean over sentences.",
        "Bars": "Left: standard errors from sampling; right: paired standard errors over sentences.",
        "Published": "Compare the shapes of these curves with Figure 1 of Lee, Shu & Cho 2020, not their heights: the "
        "paper's released code makes the importance weights sum to one and divides log-probabilities by the length; "
        "here values are log p(y|x) of whole sentences.",
    },
    over=STEPS,
    label="Marginal log-probability against refinement steps",
)

ANALYSIS = Analysis(
    name="marginal",
    title="Marginal log-probability",
    settings=MarginalSettings,
    select=refining(TARGET_LATENT),
    needs="it follows refinement of latents of target positions",
    measure="workflow_src.evaluation.analyses.marginal.measure:measure",
    tables=(TABLE,),
    split="dev",
    rule="estimate_marginal",
    message="Estimating the marginal log-probability of every procedure's outputs",
    # Steps differ by less than bfloat16 resolves.
    float32=True,
    hours=4,
    order=1,
)
