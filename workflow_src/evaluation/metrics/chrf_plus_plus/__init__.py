"""sacreBLEU's chrF++: chrF with n-grams of one and two words beside those of characters."""

from pydantic import Field

from workflow_src.evaluation.metrics import chrf
from workflow_src.spec import Metric


class Settings(chrf.Settings):
    word_order: int = Field(2, ge=1, description="longest n-grams of words")


METRIC = Metric(
    name="chrf++",
    title="chrF++",
    segments="workflow_src.evaluation.metrics.chrf.measure:segments",
    score="workflow_src.evaluation.metrics.chrf.measure:score",
    settings=Settings,
    references="all",
    bounds=(0, 100),
    order=40,
    about="sacreBLEU's",
)
