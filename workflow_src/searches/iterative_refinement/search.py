"""y^1 = argmax p(y|x), y^l = argmax p(y | y^(l-1), x): a fixed number of passes, or until the output repeats.

Outputs have the likeliest lengths.
"""

from __future__ import annotations

import contextlib

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src.decoding.candidates import likely_lengths, traces_of_best, unpadded, winners
from workflow_src.decoding.iterative import run_passes, run_passes_until_repeated
from workflow_src.decoding.passes import Pass
from workflow_src.decoding.settings import RESCORER
from workflow_src.nn.layers import with_padding
from workflow_src.runtime.device import on_cpu
from workflow_src.searches.iterative_refinement import IterativeRefinementSettings
from workflow_src.spec import MODEL
from workflow_src.types import Hypotheses, IterativeModel, Networks, Rescorer


class RefinementPass(nn.Module):
    """Source (B, S) -> outputs (B * lengths, N) of the last pass, padded, and their mean log-probability, else 0."""

    def __init__(self, model: IterativeModel, settings: IterativeRefinementSettings, scored: bool):
        super().__init__()
        self.model, self.settings, self.scored = model, settings, scored

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        memory, lengths = likely_lengths(self.model, self.model.encode(source), self.settings)
        # Lengths of one sentence differ, also where a graph is for single sentences.
        with with_padding() if self.settings.lengths > 1 else contextlib.nullcontext():
            return run_passes(self.model, memory, lengths, self.settings.passes, self.scored)


def _ranks(settings: IterativeRefinementSettings, scored: bool) -> bool:
    """Whether scores are needed: candidates are ranked by them where there is no rescorer."""
    return (settings.lengths > 1 and settings.rescorer is None) or scored


def program(networks: Networks, settings: IterativeRefinementSettings, scored: bool) -> Pass:
    rescorer = networks.get(RESCORER)

    @torch.no_grad()
    def read(source: np.ndarray, arrays: list[np.ndarray]) -> Hypotheses:
        outputs, scores = map(torch.from_numpy, arrays)
        pass_counts = torch.full((len(outputs),), settings.passes)
        return _best(torch.from_numpy(source), outputs, scores, pass_counts, rescorer, scored, settings)

    module = RefinementPass(networks[MODEL], settings, _ranks(settings, scored))
    return Pass(module, outputs=("outputs", "scores"), read=read)


@torch.no_grad()
def run(
    models: Networks,
    source: Tensor,
    settings: IterativeRefinementSettings,
    scored: bool = True,
    trace: bool = False,
) -> Hypotheses:
    """Translate source (B, S); scores are those of the ranking, steps the number of passes.

    With several lengths, this is the largest number of passes of a length.
    """
    model: IterativeModel = models[MODEL]
    memory, lengths = likely_lengths(model, model.encode(source), settings)
    ranks = _ranks(settings, scored)
    trace_outputs: list[Tensor] = []
    watch = trace_outputs.append if trace else None
    if settings.stop == "adaptive":
        outputs, scores, pass_counts = run_passes_until_repeated(
            model, memory, lengths, settings.passes, ranks, watch, settings.patience
        )
    else:
        outputs, scores = run_passes(model, memory, lengths, settings.passes, ranks, watch)
        pass_counts = torch.full_like(lengths, settings.passes)
    best = _best(source, outputs, scores, pass_counts, models.get(RESCORER), scored, settings)
    if trace:
        # Sentences that stopped early keep their outputs.
        trace_outputs += [outputs] * (settings.passes - len(trace_outputs))
        best.traces = traces_of_best(best.tokens, [unpadded(outputs_of_pass) for outputs_of_pass in trace_outputs])
    return best


def _best(
    source: Tensor,
    outputs: Tensor,
    scores: Tensor,
    pass_counts: Tensor,
    rescorer: Rescorer | None,
    scored: bool,
    settings: IterativeRefinementSettings,
) -> Hypotheses:
    """The best of the K candidates (B * K, N) of every sentence, and the largest number of passes of a candidate."""
    outputs, scores, pass_counts = on_cpu(outputs, scores, pass_counts)
    best = winners(outputs, scores, source, rescorer, scored, settings.length_penalty)
    best.steps = pass_counts.view(len(source), -1).amax(1).tolist()
    return best
