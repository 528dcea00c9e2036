"""p-values in the report: what a caption says about them, and the table of networks against delta."""

from __future__ import annotations

from typing import Any

from workflow_src.config.experiment import Removal
from workflow_src.evaluation.report.conventions import removal_words
from workflow_src.evaluation.report.results import AUTOREGRESSIVE
from workflow_src.evaluation.report.tables import p_digits, row_label
from workflow_src.records.atomic import ArtifactError, read_json

LEVEL = 0.05


def read(path: Any) -> dict[str, Any]:
    """The content of significance.json. Raises ArtifactError for one that does not say which test made it."""
    found = read_json(path)
    if not isinstance(found, dict) or "test" not in found:
        raise ArtifactError(f"file {path} does not say which test its p-values are of; compare the rows again.")
    return found


def _words(test: dict[str, Any]) -> str:
    sides = "two-sided " if test["two_sided"] else ""
    return f"p: {sides}{test['name']} of corpus BLEU, {test['trials']:,} trials"


def _corrected(comparisons: int) -> str:
    """How many comparisons a table makes, and the threshold that keeps its level for all of them together."""
    if comparisons == 1:
        return f" One comparison: the threshold is p < {LEVEL:g}."
    return (
        f" {comparisons} comparisons: by Bonferroni's correction the threshold for the whole table is "
        f"p < {LEVEL / comparisons:.2g}."
    )


def main_caption(significance: dict[str, Any] | None, comparisons: int) -> str:
    """What p is in the main table, and how many it has; empty where it has none."""
    if not significance or not comparisons:
        return ""
    return (
        f"{_words(significance['test'])}, of refined rows against the prior mean of their model and of all others "
        f"against the teacher's beam search.{_corrected(comparisons)}"
    )


def delta_table(
    significance: dict[str, Any] | None, rows: list[dict[str, Any]], manifest: dict[str, Any], removed: Removal
) -> dict[str, Any] | None:
    """Networks against delta: `caption`, `heads`, and `rows` of cells as text; None where nothing was compared.

    `rows` are those of results.json; those count from which `removed` was removed, each seed by itself.
    """
    tested = [
        row
        for row in rows
        if row.get("delta_p_value") is not None
        and row["family"] not in AUTOREGRESSIVE
        and row["repetitions_removed"] == removed
    ]
    if not significance or not tested:
        return None
    several = len({row["seed"] for row in tested}) > 1
    cells = [
        [f"{row['system']}: {row_label(row, manifest)}", str(row["steps"])]
        + ([str(row["seed"])] if several else [])
        + [f"{row['bleu']:.1f}", _signed(row["delta_difference"]), p_digits(row["delta_p_value"])]
        for row in tested
    ]
    caption = (
        f"Trained networks against delta, which needs none: each row against the delta row of the same model that has "
        f"the same steps, engine, step size and way of deciding lengths and stopping; "
        f"{removal_words(removed)}. {_words(significance['test'])}.{_corrected(len(cells))}"
    )
    heads = ["", "L", *(["seed"] if several else []), "BLEU", "ΔBLEU", "p"]
    return {"caption": caption, "heads": heads, "rows": cells}


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")
