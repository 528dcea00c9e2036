"""Curves of edit distance and repetitions over refinement steps."""

from __future__ import annotations

from workflow_src.evaluation.analyses.curves import CurvePanel, curve_blocks, start_title
from workflow_src.evaluation.analyses.tokens import Tokens, TokensPoint
from workflow_src.evaluation.document import Block, Caption
from workflow_src.evaluation.manifest import Manifest


def show(content: Tokens, manifest: Manifest) -> list[Block]:
    """Edit distance from the first output, and repetitions relative to it where it has any, against L."""

    def relative(point: TokensPoint) -> str:
        ratio, error = point.relative_repetitions, point.relative_repetitions_error
        return "–" if ratio is None or error is None else f"{100 * ratio:.0f} ± {100 * error:.0f}"

    def cells(point: TokensPoint) -> list[str]:
        repetitions = f"{point.repetitions:.2f}"
        if not point.steps:
            return ["", "", repetitions, ""]
        distance = f"{point.edit_distance:.2f} ± {point.edit_distance_error:.2f}"
        return [distance, f"{100 * point.changed:.0f}", repetitions, relative(point)]

    start = start_title(manifest)
    caption = Caption(
        f"What L steps change on {content.scope}, in subwords.",
        {
            "Edit distance": f"From the {start}'s output.",
            "Repetitions": f"Subwords that repeat the one before, relative to the {start}'s.",
            "Bars": "Standard errors over sentences.",
        },
    )
    panels = (
        CurvePanel("edit_distance", "edit distance from L = 0, subwords a sentence", "edit_distance_error"),
        CurvePanel("relative_repetitions", "repetitions, % of those at L = 0", "relative_repetitions_error", 100),
    )
    heads = ["edit distance", "changed, %", "repetitions a sentence", "of those at L = 0, %"]
    label = "Edit distance and repetitions against refinement steps"
    return curve_blocks(content, manifest, caption, heads, cells, panels, label)
