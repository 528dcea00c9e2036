"""Cased BLEU over the tokens of Moses, as many papers count it."""

from workflow_src.spec import Convention, Metric, spaced_words_only

METRIC = Metric(
    name="bleu_tokenised",
    title="tokenised BLEU",
    score="workflow_src.evaluation.metrics.bleu_tokenised.measure:score",
    references="all",
    bounds=(0, 100),
    conflict=spaced_words_only,
    default=True,
    order=10,
    uncertainty=False,
    convention=Convention("tokenised", "tokenised", "cased BLEU over the tokens of Moses"),
)
