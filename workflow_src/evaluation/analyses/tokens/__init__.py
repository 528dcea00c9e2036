"""What refinement changes in subwords: edit distance and repetitions (Lee et al. 2020, Figure 2)."""

from pydantic import Field

from workflow_src.config.plan.selection import refining
from workflow_src.evaluation.analyses import STEPS, Steps
from workflow_src.spec import TARGET_LATENT, Analysis, AnalysisSettings, Figure, FigureTable


class TokensSettings(AnalysisSettings):
    sentences: int = Field(100, gt=0, description="first sentences of dev")
    steps: Steps = Field((1, 2, 4, 8), min_length=1, description="beside 0, the prior mean")


TABLE = FigureTable(
    (
        Figure(
            "edit_distance",
            "edit distance",
            digits=2,
            error="edit_distance_error",
            panel="edit distance from L = 0, subwords a sentence",
            change=True,
        ),
        Figure("changed", "changed, %", digits=0, factor=100, change=True),
        Figure("repetitions", "repetitions a sentence", digits=2),
        # Null where outputs of step 0 have no repetitions.
        Figure(
            "relative_repetitions",
            "of those at L = 0, %",
            digits=0,
            factor=100,
            error="relative_repetitions_error",
            panel="repetitions, % of those at L = 0",
            optional=True,
            change=True,
        ),
    ),
    line="What L steps change on {scope}, in subwords.",
    notes={
        "Edit distance": "From the {start}'s output.",
        "Repetitions": "Subwords that repeat the one before, relative to the {start}'s.",
        "Bars": "Standard errors over sentences.",
    },
    over=STEPS,
    label="Edit distance and repetitions against refinement steps",
)

ANALYSIS = Analysis(
    name="tokens",
    title="What refinement changes",
    settings=TokensSettings,
    select=refining(TARGET_LATENT),
    needs="it follows refinement of latents of target positions",
    measure="workflow_src.evaluation.analyses.tokens.measure:measure",
    tables=(TABLE,),
    split="dev",
    rule="compare_tokens",
    message="Counting what refinement changes, in subwords",
    order=2,
)
