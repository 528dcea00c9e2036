"""How often the length head is right, and what its errors cost (Lee et al. 2020, section 4.2)."""

from pydantic import Field

from workflow_src.config.experiment import Removal
from workflow_src.config.plan.selection import latent_models, refinements, scoring, translating_at_lengths
from workflow_src.config.resolved import Loaded
from workflow_src.evaluation.analyses.content import Entry, FirstSentences, Record
from workflow_src.spec import TARGET_LATENT, Analysis, AnalysisSettings, Selection


class LengthsSettings(AnalysisSettings):
    sentences: int = Field(100, gt=0, description="first sentences of test")
    candidates: int = Field(5, gt=0, description="most probable lengths that an oracle chooses from")
    steps: int = Field(1, ge=0, description="refinement steps of the rows beside the prior mean")


class Accuracy(Record):
    """Shares of sentences whose most probable length is right, or off by at most 1 or 2 subwords.

    `within_top` are the shares whose true length is among the first 1, 2, … candidates; `bias` is predicted minus true,
    in subwords.
    """

    exact: float
    within_1: float
    within_2: float
    bias: float
    within_top: tuple[float, ...] = Field(min_length=1)


class LengthsBleu(Record):
    """BLEU at predicted lengths, at the references', and of the best of several by the reference."""

    predicted: float
    reference: float
    oracle: float


class LengthsRow(Entry):
    """`label` is that of a search without steps."""

    steps: int
    bleu: LengthsBleu
    label: str | None = None


class Lengths(FirstSentences):
    """How well lengths are predicted, by model, and BLEU at predicted lengths, by search."""

    candidates: int
    models: dict[str, Accuracy]
    rows: tuple[LengthsRow, ...]
    remove_repetitions: Removal


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
    content=Lengths,
    show="workflow_src.evaluation.analyses.lengths.show:show",
    split="test",
    message="Measuring how well lengths are predicted",
    order=3,
)
