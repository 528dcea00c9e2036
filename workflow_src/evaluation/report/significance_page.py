"""p-values in the report: notes on tables, and tables of networks against their controls."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from workflow_src.evaluation.document import Block, Caption, Heading, table_of
from workflow_src.evaluation.manifest import Manifest, ShownDecode
from workflow_src.evaluation.quality.significance import LEVEL
from workflow_src.evaluation.report.captions import removal_words
from workflow_src.evaluation.report.files import Significance
from workflow_src.evaluation.report.markdown import signed
from workflow_src.evaluation.report.results import FROM_CONTROL, KEY, Mean, means
from workflow_src.evaluation.report.tables import p_digits
from workflow_src.spec import Metric


def p_words(significance: Significance | None, comparisons: int, metrics: Sequence[Metric], against: str) -> str:
    """The test, the rows that others were compared with, and the threshold for all comparisons of a table by
    Bonferroni's correction; empty without comparisons."""
    if not significance or not comparisons:
        return ""
    test, titles = significance.test, " and ".join(metric.title for metric in metrics)
    return (
        f"{test.name.capitalize()} of corpus {titles}, {test.trials:,} trials, against {against}. Comparisons: "
        f"{comparisons}; by Bonferroni's correction the threshold for the whole table is p < {LEVEL / comparisons:.2g}."
    )


def compared_with(figures: pd.DataFrame) -> str:
    """The rows that the figures of a table were compared with."""
    compared = figures[(figures["against"] != "") & figures["p"].notna() & (figures["figure"] != FROM_CONTROL)]
    return " or ".join(dict.fromkeys(compared["against"]))


def control_tables(significance: Significance | None, figures: pd.DataFrame, manifest: Manifest) -> list[Block]:
    """A heading and a table of networks for each control.

    `figures` are those of the main table (`Results.shown`), each seed by itself.
    """
    tested: dict[str, list[tuple[ShownDecode, int, dict[str, Mean]]]] = {}
    for (system, name, seed), by_figure in means(figures, KEY).items():
        decode = manifest.decode(system, name)
        if FROM_CONTROL in by_figure and decode.control and not decode.autoregressive:
            tested.setdefault(decode.control, []).append((decode, seed, by_figure))
    main, removed = manifest.main, manifest.report.remove_repetitions
    blocks: list[Block] = []
    for name, compared in tested.items() if significance else ():
        control = manifest.title(name)
        entries = [_entry(decode, seed, by_figure, main) for decode, seed, by_figure in compared]
        removal = removal_words(removed, {decode.means_repetitions for decode, _, _ in compared})
        notes = {
            "Rows": f"Each against the {control} row of the same model that has the same settings and engine (of "
            "settings that dev chooses, the same candidates).",
            "Repetitions": f"In these outputs, {removal}.",
            "p": p_words(significance, len(entries), [main], control),
        }
        caption = Caption(f"Trained networks against {control}, which needs none.", notes)
        blocks += [Heading(f"Networks against {control}"), table_of(entries, ("network",), caption=caption)]
    return blocks


def _entry(decode: ShownDecode, seed: int, by_figure: dict[str, Mean], main: Metric) -> dict[str, str]:
    steps, difference = by_figure.get("mean_steps"), by_figure[FROM_CONTROL]
    return {
        "network": f"{decode.system.name}: {decode.label(steps.value if steps else None)}",
        "seed": str(seed),
        main.title: f"{by_figure[main.name].value:.1f}",
        f"Δ{main.title}": signed(difference.value),
        "p": "" if difference.p is None else p_digits(difference.p),
    }
