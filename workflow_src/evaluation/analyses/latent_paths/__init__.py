"""Where latents go under refinement: distances, log-densities, and how far each step is a delta step."""

from typing import Any

from pydantic import Field

from workflow_src.config.plan.selection import refining
from workflow_src.evaluation.analyses import STEPS, Steps
from workflow_src.spec import LATENT, Analysis, AnalysisSettings, Figure, FigureTable
from workflow_src.spec.analyses import Enabled


class LatentPathsSettings(AnalysisSettings):
    enabled: Enabled = False
    sentences: int = Field(100, gt=0, description="first sentences of dev")
    steps: Steps = Field((1, 2, 4, 8), min_length=1, description="beside 0, the prior mean")


def _mean(key: str, head: str, panel: str | None = None, digits: int = 3, **more: Any) -> Figure:
    """A mean over sentences with its standard error; null where no sentence has the figure."""
    return Figure(key, head, digits, error=f"{key}_error", panel=panel, optional=True, **more)


TABLE = FigureTable(
    (
        _mean("from_start", "|z − z_0|", "distance from z_0"),
        _mean("step", "step", "length of step L", change=True),
        _mean("from_reference", "from the reference's", "to the reference's mean"),
        _mean("log_prior", "log p(z|x)", "log p(z|x), nats a position", 2, signed=True),
        _mean("log_posterior", "log q(z|x,y)", "log q(z|x,y), nats a position", 2, signed=True),
        _mean("cosine", "cosine", "cosine with the delta step", 2, signed=True, change=True),
        # Sentences that have a cosine.
        Figure("moving", "of sentences", digits=0, change=True),
        _mean("changed", "changed, %", digits=0, factor=100, change=True),
    ),
    line="Where latents are after L steps, on {scope}, from the {start}, z_0.",
    notes={
        "Distances": "Euclidean norms of a position's latent: from z_0, from the step before, and from the mean of "
        "q(z|x,y) with the reference as y.",
        "Log-densities": "In nats a position: of the prior p(z|x), and of q(z|x,y) with y as what z_L decodes to.",
        "Cosine": "Between a step and the delta step from the same point, over the sentences in which both move.",
        "Means": "Over positions, then over sentences; bars and ± are standard errors over sentences.",
        "Lengths": "Latents of target positions are followed at the reference's length.",
    },
    over=STEPS,
    label="Distances, log-densities and directions of latents against refinement steps",
)

ANALYSIS = Analysis(
    name="latent_paths",
    title="Paths of the latents",
    settings=LatentPathsSettings,
    select=refining(LATENT),
    needs="it follows refinement of latents",
    measure="workflow_src.evaluation.analyses.latent_paths.measure:measure",
    tables=(TABLE,),
    split="dev",
    rule="follow_latents",
    message="Following latents from step to step",
    # Steps differ by less than bfloat16 resolves.
    float32=True,
    order=7,
)
