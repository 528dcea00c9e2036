"""sacreBLEU's BLEU by the tokeniser of the target language: the main metric."""

from workflow_src.spec import Convention, Metric

METRIC = Metric(
    name="bleu",
    title="BLEU",
    segments="workflow_src.evaluation.metrics.bleu.measure:segments",
    score="workflow_src.evaluation.metrics.bleu.measure:score",
    references="all",
    bounds=(0, 100),
    default=True,
    order=0,
    decides=True,
    least=5.0,
    about="sacreBLEU's",
    convention=Convention("sacrebleu", "sacreBLEU", "sacreBLEU"),
    leaderboard=True,
)
