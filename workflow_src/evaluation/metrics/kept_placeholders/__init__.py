"""Share of placeholders, such as URLs, tags and %1, of source and reference that translations keep."""

from workflow_src.spec import Metric

METRIC = Metric(
    name="kept_placeholders",
    title="placeholders kept",
    unit="%",
    segments="workflow_src.evaluation.metrics.kept_placeholders.measure:segments",
    bounds=(0, 1),
    order=60,
    about="of URLs, e-mail addresses, tags, entities and variables that source and reference share",
)
