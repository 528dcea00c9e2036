"""sacreBLEU's chrF: an F score of n-grams of characters."""

from pydantic import Field

from workflow_src.spec import Frozen, Metric


class Settings(Frozen):
    char_order: int = Field(6, ge=1, description="longest n-grams of characters")
    word_order: int = Field(0, ge=0, description="longest n-grams of words; 2: chrF++")
    beta: int = Field(2, ge=1, description="recall counts so many times as much as precision")
    lowercase: bool = False


METRIC = Metric(
    name="chrf",
    title="chrF",
    segments="workflow_src.evaluation.metrics.chrf.measure:segments",
    score="workflow_src.evaluation.metrics.chrf.measure:score",
    settings=Settings,
    references="all",
    bounds=(0, 100),
    default=True,
    order=30,
    uncertainty=False,
    about="sacreBLEU's",
    leaderboard=True,
)
