"""Mask-predict at the most probable lengths, side by side (Ghazvininejad et al. 2019, section 3); the best output wins.

Outputs are ranked by the log-probability of their subwords in the passes that predicted them, divided by their number
** `length_penalty` (the mean, by default), or by a rescorer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from workflow_src.decoding.candidates import join_batches, traces_of_best, unpadded, winners, winners_pass
from workflow_src.decoding.masked import Watch, mask_predict, mean_chance
from workflow_src.decoding.passes import Pass
from workflow_src.decoding.ranking import ROWS
from workflow_src.decoding.settings import RESCORER
from workflow_src.nn.layers import with_padding
from workflow_src.searches.mask_predict import MaskPredictSettings
from workflow_src.spec import MODEL
from workflow_src.types import Hypotheses, MaskedModel, Networks


class MaskPredictPass(nn.Module):
    """Source (B, S) -> outputs (B * length_beam, N), padded, and the mean log-probability of their subwords."""

    def __init__(self, model: MaskedModel, settings: MaskPredictSettings):
        super().__init__()
        self.model, self.settings = model, settings

    def forward(self, source: Tensor, after_pass: Watch | None = None) -> tuple[Tensor, Tensor]:
        """`after_pass` is called with the subwords and their mask after every pass."""
        model, settings = self.model, self.settings
        memory = model.encode(source)
        if settings.length_beam == 1:
            lengths = model.length.predict(memory, settings.length_quantile, settings.lengthening)
        else:
            lengths = model.length.likely(memory, settings.length_beam, settings.lengthening).flatten()
        # Lengths of one sentence differ, also where a graph is for single sentences.
        with with_padding() if settings.length_beam > 1 else contextlib.nullcontext():
            symbols, chances, mask = mask_predict(model, memory, lengths, settings.iterations, after_pass)
        return model.output(symbols, mask), mean_chance(chances, mask)


def program(networks: Networks, settings: MaskPredictSettings, scored: bool) -> Pass:
    module = MaskPredictPass(networks[MODEL], settings)
    return winners_pass(module, networks.get(RESCORER), scored, settings.length_penalty)


@torch.no_grad()
def run(
    models: Networks,
    source: Tensor,
    settings: MaskPredictSettings,
    scored: bool = True,
    trace: bool = False,
) -> Hypotheses:
    """Translate source (B, S); scores are those of the ranking.

    A trace has the outputs of every pass at the length of the best output.
    """
    model: MaskedModel = models[MODEL]
    network, chunks = MaskPredictPass(model, settings), []
    outputs_by_pass: list[list[list[int]]] = [[] for _ in range(settings.iterations)]
    # At most ROWS candidates are decoded together.
    for chunk in source.split(max(1, ROWS // settings.length_beam)):
        passes = iter(outputs_by_pass)

        def watch(symbols: Tensor, mask: Tensor, passes: Iterator[list[list[int]]] = passes) -> None:
            next(passes).extend(unpadded(model.output(symbols, mask)))

        chunks.append(network(chunk, watch if trace else None))
    best = winners(*join_batches(chunks), source, models.get(RESCORER), scored, settings.length_penalty)
    if trace:
        best.traces = traces_of_best(best.tokens, outputs_by_pass)
    return best


@torch.no_grad()
def at_lengths(models: Networks, source: Tensor, settings: MaskPredictSettings, lengths: Tensor) -> Hypotheses:
    """Translate source (B, S) at lengths (B,), such as the references'; scores as without a rescorer."""
    model: MaskedModel = models[MODEL]
    symbols, chances, mask = mask_predict(model, model.encode(source), lengths, settings.iterations)
    return winners(model.output(symbols, mask), mean_chance(chances, mask), source, None)
