"""Bound and BLEU of the outputs of each step, and when outputs stand still (Shu et al. 2020, Figures 3 and 4)."""

from pydantic import Field

from workflow_src.config.experiment import Removal
from workflow_src.config.plan.selection import refinements, scoring
from workflow_src.config.resolved import Loaded
from workflow_src.evaluation.analyses.content import Curves, GainPoint
from workflow_src.spec import BOUND, Analysis, AnalysisSettings, Selection
from workflow_src.spec.analyses import Enabled


class ConvergenceSettings(AnalysisSettings):
    enabled: Enabled = False
    sentences: int = Field(200, gt=0, description="first sentences of dev")
    samples: int = Field(20, gt=0, description="draws of z for each output's bound")
    steps: int = Field(10, gt=0, description="most steps that are taken")
    seed: int = Field(1, ge=0)


class ConvergencePoint(GainPoint):
    """The evidence lower bound in nats a sentence, BLEU, and the share of sentences that stand still from here on."""

    bound: float
    bound_error: float
    bleu: float
    stopped: float


class Convergence(Curves[ConvergencePoint]):
    """Bound and BLEU after every step; `samples` are the draws of z for each bound."""

    samples: int
    remove_repetitions: Removal


def select(_: ConvergenceSettings, loaded: Loaded) -> Selection:
    return Selection.of(refinements(loaded, BOUND), more=scoring(loaded))


ANALYSIS = Analysis(
    name="convergence",
    title="Convergence",
    settings=ConvergenceSettings,
    select=select,
    needs="it follows refinement of latents that have a bound",
    measure="workflow_src.evaluation.analyses.convergence.measure:measure",
    content=Convergence,
    show="workflow_src.evaluation.analyses.convergence.show:show",
    split="dev",
    message="Measuring bound, BLEU and standstill after every step",
    # Steps differ by less than bfloat16 resolves.
    float32=True,
    order=6,
)
