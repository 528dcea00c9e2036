"""How often the length head is right, and what its errors cost (Lee et al. 2020, section 4.2)."""

from pydantic import Field

from workflow_src.config.plan.selection import latent_models, refinements, scoring, translating_at_lengths
from workflow_src.config.resolved import Loaded
from workflow_src.spec import TARGET_LATENT, Analysis, AnalysisSettings, Figure, FigureTable, Selection


class LengthsSettings(AnalysisSettings):
    sentences: int = Field(100, gt=0, description="first sentences of test")
    candidates: int = Field(5, gt=0, description="most probable lengths that an oracle chooses from")
    steps: int = Field(1, ge=0, description="refinement steps of the rows beside the prior mean")


ACCURACY = FigureTable(
    (
        Figure("exact", "exact, %", factor=100),
        Figure("within_1", "off by ≤ 1, %", factor=100),
        Figure("within_2", "off by ≤ 2, %", factor=100),
        Figure("within_top", "among the {candidates} likeliest, %", factor=100),
        Figure("bias", "bias, subwords", digits=2, signed=True),
    ),
    line="Predicted target lengths against the references', in subwords, on {scope}.",
    key="models",
)
BLEU = FigureTable(
    (
        Figure("predicted", "predicted length"),
        Figure("reference", "reference's length"),
        Figure("oracle", "best of the {candidates} likeliest"),
    ),
    line="BLEU on {scope}, by where lengths come from.",
    notes={
        "Repetitions": "{removed}",
        "Best": "The candidate with the best sentence BLEU, which no system can choose. It is no bound: another choice "
        "may have more corpus BLEU, and so may other lengths.",
    },
)


def select(_: LengthsSettings, loaded: Loaded) -> Selection:
    """Models, the searches that refine their latents, and those that translate at given lengths."""
    searches = [*latent_models(loaded), *refinements(loaded, TARGET_LATENT), *translating_at_lengths(loaded)]
    return Selection.of(searches, more=scoring(loaded))


ANALYSIS = Analysis(
    name="lengths",
    title="Lengths",
    settings=LengthsSettings,
    select=select,
    needs="it looks at searches that translate at given lengths",
    measure="workflow_src.evaluation.analyses.lengths.measure:measure",
    tables=(ACCURACY, BLEU),
    split="test",
    message="Measuring how well lengths are predicted",
    order=3,
)
