"""Curves of marginal log-probability over refinement steps."""

from __future__ import annotations

from workflow_src.evaluation.analyses.curves import CurvePanel, change_cells, curve_blocks, start_title
from workflow_src.evaluation.analyses.marginal import Marginal, MarginalPoint
from workflow_src.evaluation.document import Block, Caption
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.report.markdown import signed


def show(content: Marginal, manifest: Manifest) -> list[Block]:
    """log p(y|x) against L with its error from sampling, and the gain on L = 0 with its paired error over sentences."""

    def cells(point: MarginalPoint) -> list[str]:
        value = f"{signed(point.log_probability)} ± {point.error:.2f}"
        return [value, *change_cells(point), f"{point.effective_samples:.0f}"]

    caption = Caption(
        f"Marginal log-probability of what each procedure puts out after L steps, on {content.scope}.",
        {
            "Estimate": f"By importance sampling with {content.samples:,} samples of q(z|y,x), given the length, whose "
            "own probability is left out; the mean over sentences.",
            "Bars": "Left: standard errors from sampling; right: paired standard errors over sentences.",
            "Published": "Compare the shapes of these curves with Figure 1 of Lee, Shu & Cho 2020, not their heights: "
            "the paper's released code makes the importance weights sum to one and divides log-probabilities by the "
            "length; here values are log p(y|x) of whole sentences.",
        },
    )
    panels = (
        CurvePanel("log_probability", "log p(y|x), nats a sentence", "error"),
        CurvePanel("gain", f"gain on the {start_title(manifest)}, nats", "gain_error"),
    )
    heads = ["log p(y|x)", "gain", "risen, %", "fallen, %", "effective samples"]
    label = "Marginal log-probability against refinement steps"
    return curve_blocks(content, manifest, caption, heads, cells, panels, label)
