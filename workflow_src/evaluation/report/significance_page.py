"""p-values in the report: sentences for captions, and tables of networks against their controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from workflow_src.evaluation.conventions import removal_words
from workflow_src.evaluation.document import Block, Caption, Heading, Table
from workflow_src.evaluation.manifest import Manifest, ShownDecode
from workflow_src.evaluation.quality.significance import LEVEL
from workflow_src.evaluation.report.markdown import signed
from workflow_src.evaluation.report.results import FROM_CONTROL, KEY, Mean, Significance, means
from workflow_src.evaluation.report.tables import p_digits, row_words
from workflow_src.spec import Metric


def _words(test: dict[str, Any], measured: Sequence[Metric]) -> str:
    """The test and its metrics, in words."""
    sides = "Two-sided " if test["two_sided"] else ""
    titles = " and of ".join(metric.title for metric in measured)
    return f"{sides}{test['name']} of corpus {titles}, {test['trials']:,} trials"


def _corrected(comparisons: int) -> str:
    """The number of comparisons of a table, and the threshold that keeps the level for all of them, in a sentence."""
    if comparisons == 1:
        return f" One comparison: the threshold is p < {LEVEL:g}."
    return (
        f" {comparisons} comparisons: by Bonferroni's correction the threshold for the whole table is "
        f"p < {LEVEL / comparisons:.2g}."
    )


def compared_words(significance: Significance | None, comparisons: int, manifest: Manifest) -> str:
    """Sentences about the p-values of the main table and their number; empty where it has none."""
    if not significance or not comparisons:
        return ""
    starts, reference = _starts(manifest), manifest.reference
    against = [f"of refined rows against the {' or the '.join(starts)} of their model"] if starts else []
    if reference:
        other_rows = "all others" if starts else "all rows"
        against.append(f"of {other_rows} against {row_words(reference)}")
    tested = [metric for metric in manifest.metrics if metric.uncertainty]
    return f"{_words(significance.test, tested)}, {' and '.join(against)}.{_corrected(comparisons)}"


def _starts(manifest: Manifest) -> list[str]:
    """Titles of the baselines of refined rows that have a row of the same model."""
    decoded = {(decode.system.name, decode.search.name) for decode in manifest.decodes}
    names = [
        baseline
        for decode in manifest.decodes
        if (baseline := decode.search.baseline)
        and {(decode.system.group, baseline), (decode.system.name, baseline)} & decoded
    ]
    return [manifest.title(name) for name in dict.fromkeys(names)]


def control_tables(
    significance: Significance | None,
    figures: pd.DataFrame,
    manifest: Manifest,
    data: str = "",
    notes: Mapping[str, str] = {},
) -> list[Block]:
    """A heading and a table of networks for each control.

    All captions have `data` and `notes`. `figures` are those of the main table (`Results.shown`), each seed by itself.
    """
    tested: dict[str, list[tuple[ShownDecode, int, dict[str, Mean]]]] = {}
    for (system, name, seed), by_figure in means(figures, KEY).items():
        decode = manifest.decode(system, name)
        if FROM_CONTROL in by_figure and decode.control and not decode.system.family.autoregressive:
            tested.setdefault(decode.control, []).append((decode, seed, by_figure))
    if not significance:
        return []
    return [
        block
        for name, compared in tested.items()
        for block in _control_table(significance, manifest, name, compared, data, notes)
    ]


def _control_table(
    significance: Significance,
    manifest: Manifest,
    name: str,
    tested: list[tuple[ShownDecode, int, dict[str, Mean]]],
    data: str,
    notes: Mapping[str, str],
) -> list[Block]:
    main, removed, control = manifest.main, manifest.report.remove_repetitions, manifest.title(name)
    several = len({seed for _, seed, _ in tested}) > 1
    cells = []
    for decode, seed, by_figure in tested:
        steps, difference = by_figure.get("mean_steps"), by_figure[FROM_CONTROL]
        cells.append(
            [
                f"{decode.system.name}: {decode.label(steps.value if steps else None)}",
                *([str(seed)] if several else []),
                f"{by_figure[main.name].value:.1f}",
                signed(difference.value),
                "–" if difference.p is None else p_digits(difference.p),
            ]
        )
    means_repetitions = {decode.means_repetitions for decode, _, _ in tested}
    caption = Caption(
        f"Trained networks against {control}, which needs none. {data}".strip(),
        {
            "Rows": f"Each against the {control} row of the same model that has the same settings and engine (of "
            "settings that dev chooses, the same candidates).",
            "Repetitions": f"In these outputs, {removal_words(removed, means_repetitions)}.",
            "p": f"{_words(significance.test, [main])}.{_corrected(len(cells))}",
            **notes,
        },
    )
    heads = ["", *(["seed"] if several else []), main.title, f"Δ{main.title}", "p"]
    return [Heading(f"Networks against {control}"), Table(heads, cells, caption)]
