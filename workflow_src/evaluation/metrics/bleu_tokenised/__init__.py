"""Cased BLEU over the tokens of Moses, as many papers count it."""

from workflow_src.spec import Convention, Corpus, Metric, NoSettings


def conflict(corpus: Corpus, _settings: NoSettings) -> str | None:
    """Papers on languages that `13a` does not fit count otherwise."""
    if corpus.tokeniser == "13a":
        return None
    return f"counts words between spaces and is not measured for target {corpus.target}"


METRIC = Metric(
    name="bleu_tokenised",
    title="tokenised BLEU",
    score="workflow_src.evaluation.metrics.bleu_tokenised.measure:score",
    bounds=(0, 100),
    conflict=conflict,
    default=True,
    order=10,
    uncertainty=False,
    convention=Convention("tokenised", "tokenised", "cased BLEU over the tokens of Moses"),
)
