"""Translations from one sample of the prior, and after refinement (Lee et al. 2020, Table 2)."""

from pydantic import Field

from workflow_src.config.plan.selection import Entry as Search
from workflow_src.config.plan.selection import refinements
from workflow_src.config.resolved import Loaded
from workflow_src.evaluation.content import Content, Record
from workflow_src.registry import searches
from workflow_src.spec import TARGET_LATENT, Analysis, AnalysisSettings, Selection


class SamplesSettings(AnalysisSettings):
    sentences: int = Field(100, gt=0, description="first sentences of test that examples are picked from")
    examples: int = Field(5, gt=0)
    steps: int = Field(1, gt=0)
    seed: int = Field(1, ge=0)


class SampledSearch(Record):
    """The search that refines samples, and its steps."""

    system: str
    search: str
    steps: int


class Sample(Record):
    """Translations of line `index`, from 0, of a sample from the prior and after refinement."""

    index: int
    source: str
    reference: str
    sampled: str
    refined: str


class Samples(Content):
    """Examples: the sentences that refinement changes most."""

    search: SampledSearch
    examples: tuple[Sample, ...]


def select(_: SamplesSettings, loaded: Loaded) -> Selection:
    """The first search that refines: searches with trained networks before those of the model itself."""

    def rank(entry: Search) -> tuple[bool, int]:
        return searches()[entry["search"]].control is None, loaded.systems[entry["system"]].family.order

    return Selection.of(sorted(refinements(loaded, TARGET_LATENT), key=rank)[:1])


ANALYSIS = Analysis(
    name="samples",
    title="Translations of a sample",
    settings=SamplesSettings,
    select=select,
    needs="it follows refinement of latents of target positions",
    measure="workflow_src.evaluation.analyses.samples.measure:measure",
    content=Samples,
    show="workflow_src.evaluation.analyses.samples.show:show",
    split="test",
    rule="sample_translations",
    message="Refining translations of samples from the prior",
    order=10,
)
