"""Curves of the bound, BLEU and stopped sentences over refinement steps."""

from __future__ import annotations

from workflow_src.evaluation.analyses.convergence import Convergence, ConvergencePoint
from workflow_src.evaluation.analyses.curves import CurvePanel, change_cells, curve_blocks
from workflow_src.evaluation.analyses.shown import sentence
from workflow_src.evaluation.conventions import removal_words
from workflow_src.evaluation.document import Block, Caption
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.report.markdown import signed


def show(content: Convergence, manifest: Manifest) -> list[Block]:
    """The bound and BLEU after L steps, and the share of sentences whose output stands still from step L on."""

    def cells(point: ConvergencePoint) -> list[str]:
        bound = f"{signed(point.bound)} ± {point.bound_error:.2f}"
        stopped = f"{100 * point.stopped:.0f}" if point.steps else ""
        return [bound, *change_cells(point), f"{point.bleu:.1f}", stopped]

    caption = Caption(
        "Evidence lower bound and BLEU of what L steps put out, and sentences that stand still, on "
        f"{content.scope}; as Figures 3 and 4 of Shu et al. 2020.",
        {
            "ELBO": f"In nats a sentence, with {content.samples:,} draws of z for each output; the length's "
            "probability is part of it where latents say it.",
            "BLEU": sentence(removal_words(content.remove_repetitions)),
            "Stopped": "Sentences whose output no step from L on changes, as far as steps were followed. A delta step "
            "depends on the output alone and changes nothing later either; steps of a network may.",
            "Bars": "Standard errors over sentences.",
        },
    )
    panels = (
        CurvePanel("bound", "ELBO, nats a sentence", "bound_error"),
        CurvePanel("bleu", "BLEU"),
        CurvePanel("stopped", "sentences stopped at L, %", factor=100, first=1),
    )
    heads = ["ELBO", "gain", "risen, %", "fallen, %", "BLEU", "stopped at L, %"]
    label = "Evidence lower bound, BLEU and stopped sentences against refinement steps"
    return curve_blocks(content, manifest, caption, heads, cells, panels, label)
