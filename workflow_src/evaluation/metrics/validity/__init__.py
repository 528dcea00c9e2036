"""The share of translations that the toy grammar judges to be right answers to their source sentences."""

from workflow_src.spec import Corpus, Metric, NoSettings


def conflict(corpus: Corpus, _settings: NoSettings) -> str | None:
    if not corpus.generated:
        return "is known of generated corpora only"
    if {corpus.source, corpus.target} != {"de", "en"}:
        return f"is known from de to en and from en to de, not from {corpus.source} to {corpus.target}"
    return None


METRIC = Metric(
    name="validity",
    title="valid outputs",
    heading="valid",
    segments="workflow_src.evaluation.metrics.validity.measure:segments",
    unit="%",
    references="none",
    bounds=(0, 1),
    conflict=conflict,
    default=True,
    order=60,
    uncertainty=False,
    decides=True,
)
