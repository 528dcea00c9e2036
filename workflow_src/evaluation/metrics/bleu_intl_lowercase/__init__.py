"""BLEU over sacreBLEU's international tokens without case, as some papers count it."""

from workflow_src.spec import Convention, Metric, spaced_words_only

METRIC = Metric(
    name="bleu_intl_lowercase",
    title="lowercase BLEU",
    score="workflow_src.evaluation.metrics.bleu_intl_lowercase.measure:score",
    references="all",
    bounds=(0, 100),
    conflict=spaced_words_only,
    default=True,
    order=20,
    uncertainty=False,
    convention=Convention(
        "intl-lowercase", "international, lowercase", "BLEU over sacreBLEU's international tokens without case"
    ),
)
