"""BLEU over sacreBLEU's international tokens without case, as some papers count it."""

from workflow_src.spec import Convention, Corpus, Metric, NoSettings


def conflict(corpus: Corpus, _settings: NoSettings) -> str | None:
    """Papers on languages that `13a` does not fit count otherwise."""
    if corpus.tokeniser == "13a":
        return None
    return f"counts words between spaces and is not measured for target {corpus.target}"


METRIC = Metric(
    name="bleu_intl_lowercase",
    title="lowercase BLEU",
    score="workflow_src.evaluation.metrics.bleu_intl_lowercase.measure:score",
    bounds=(0, 100),
    conflict=conflict,
    default=True,
    order=20,
    uncertainty=False,
    convention=Convention(
        "intl-lowercase", "international, lowercase", "BLEU over sacreBLEU's international tokens without case"
    ),
)
