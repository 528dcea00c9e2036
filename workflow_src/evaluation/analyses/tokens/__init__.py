"""What refinement changes in subwords: edit distance and repetitions (Lee et al. 2020, Figure 2)."""

from pydantic import Field

from workflow_src.config.plan.selection import refining
from workflow_src.evaluation.analyses.content import CurvePoint, Curves, Steps
from workflow_src.spec import TARGET_LATENT, Analysis, AnalysisSettings


class TokensSettings(AnalysisSettings):
    sentences: int = Field(100, gt=0, description="first sentences of dev")
    steps: Steps = Field((1, 2, 4, 8), min_length=1, description="beside 0, the prior mean")


class TokensPoint(CurvePoint):
    """Edit distance from the output of step 0, in subwords a sentence, and the share of sentences that changed.

    `repetitions` are counted a sentence; relative ones are their ratio to those of step 0, None where these have none.
    """

    edit_distance: float
    edit_distance_error: float
    changed: float
    repetitions: float
    relative_repetitions: float | None
    relative_repetitions_error: float | None


class Tokens(Curves[TokensPoint]):
    """Curves of the changes by refinement."""


ANALYSIS = Analysis(
    name="tokens",
    title="What refinement changes",
    settings=TokensSettings,
    select=refining(TARGET_LATENT),
    needs="it follows refinement of latents of target positions",
    measure="workflow_src.evaluation.analyses.tokens.measure:measure",
    content=Tokens,
    show="workflow_src.evaluation.analyses.tokens.show:show",
    split="dev",
    rule="compare_tokens",
    message="Counting what refinement changes, in subwords",
    order=2,
)
