"""sacreBLEU's translation edit rate (Snover et al. 2006): edits for each 100 words of the reference."""

from pydantic import Field

from workflow_src.spec import Frozen, Metric


class Settings(Frozen):
    case_sensitive: bool = False
    normalized: bool = Field(False, description="split punctuation off")
    no_punct: bool = Field(False, description="leave punctuation out")
    asian_support: bool = Field(False, description="treat Chinese and Japanese characters as words, where normalized")


METRIC = Metric(
    name="ter",
    title="TER",
    segments="workflow_src.evaluation.metrics.ter.measure:segments",
    score="workflow_src.evaluation.metrics.ter.measure:score",
    settings=Settings,
    better="lower",
    references="all",
    bounds=(0, None),
    order=50,
    about="sacreBLEU's, less is better",
)
