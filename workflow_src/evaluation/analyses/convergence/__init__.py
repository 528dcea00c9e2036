"""Bound and BLEU of the outputs of each step, and when outputs stand still (Shu et al. 2020, Figures 3 and 4)."""

from pydantic import Field

from workflow_src.config.plan.selection import refinements, scoring
from workflow_src.config.resolved import Loaded
from workflow_src.evaluation.analyses import RISEN_AND_FALLEN, STEPS
from workflow_src.spec import BOUND, Analysis, AnalysisSettings, Figure, FigureTable, Selection
from workflow_src.spec.analyses import Enabled


class ConvergenceSettings(AnalysisSettings):
    enabled: Enabled = False
    sentences: int = Field(200, gt=0, description="first sentences of dev")
    samples: int = Field(20, gt=0, description="draws of z for each output's bound")
    steps: int = Field(10, gt=0, description="most steps that are taken")
    seed: int = Field(1, ge=0)


TABLE = FigureTable(
    (
        Figure("bound", "ELBO", digits=2, signed=True, error="bound_error", panel="ELBO, nats a sentence"),
        Figure("gain", "gain", digits=2, signed=True, error="gain_error", change=True),
        *RISEN_AND_FALLEN,
        Figure("bleu", "BLEU", panel="BLEU"),
        # Step 0 has no such figure.
        Figure(
            "stopped",
            "stopped at L, %",
            digits=0,
            factor=100,
            panel="sentences stopped at L, %",
            optional=True,
            change=True,
        ),
    ),
    line="Evidence lower bound and BLEU of what L steps put out, and sentences that stand still, on {scope}; as "
    "Figures 3 and 4 of Shu et al. 2020.",
    notes={
        "ELBO": "In nats a sentence, with {samples:,} draws of z for each output; the length's probability is part of "
        "it where latents say it.",
        "BLEU": "{removed}",
        "Stopped": "Sentences whose output no step from L on changes, as far as steps were followed. A delta step "
        "depends on the output alone and changes nothing later either; steps of a network may.",
        "Bars": "Standard errors over sentences.",
    },
    over=STEPS,
    label="Evidence lower bound, BLEU and stopped sentences against refinement steps",
)


def select(_: ConvergenceSettings, loaded: Loaded) -> Selection:
    return Selection.of(refinements(loaded, BOUND), more=scoring(loaded))


ANALYSIS = Analysis(
    name="convergence",
    title="Convergence",
    settings=ConvergenceSettings,
    select=select,
    needs="it follows refinement of latents that have a bound",
    measure="workflow_src.evaluation.analyses.convergence.measure:measure",
    tables=(TABLE,),
    split="dev",
    message="Measuring bound, BLEU and standstill after every step",
    # Steps differ by less than bfloat16 resolves.
    float32=True,
    order=6,
)
