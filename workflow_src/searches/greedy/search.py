"""Greedy search over a cached autoregressive decoder, batched; finished sentences leave the batch.

A hypothesis is scored by its log-probability divided by the number of tokens, end symbol counted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from workflow_src.decoding.lengths import limits
from workflow_src.runtime.device import on_cpu, on_device
from workflow_src.searches.greedy import GreedySettings
from workflow_src.spec import MODEL
from workflow_src.types import BOS, EOS, AutoregressiveModel, Hypotheses, Networks, wide

# The batch is compacted when at most this share of it is still running: copying the cache costs more than idle rows.
COMPACT_AT = 0.85


@torch.no_grad()
def greedy(
    model: AutoregressiveModel, source: Tensor, max_length_ratio: float = 2.0, scored: bool = True
) -> Hypotheses:
    """The most probable next token, again and again. `source` (B, S).

    Scores are log-probability / tokens; without `scored` they are 0, which spares a normalisation a step.
    """
    decoder = model.start(model.encode(source))
    longest = limits(source, max_length_ratio, model.config.max_positions).tolist()
    count = source.size(0)
    outputs: list[list[int]] = [[] for _ in range(count)]
    gains: list[tuple[list[int], Tensor]] = []
    running = list(range(count))
    finished = [False] * count
    tokens = torch.full((count,), BOS, device=source.device)
    for position in range(max(longest) + 1):
        logits = decoder.step(tokens)
        normaliser = wide(logits).logsumexp(-1) if scored else None
        logits[:, :EOS] = float("-inf")
        if any(position >= longest[i] for i in running):
            full = on_device([position >= longest[i] for i in running], source.device)
            logits[full, EOS + 1 :] = float("-inf")
        best, tokens = logits.max(-1)
        if normaliser is not None:
            gains.append((running, wide(best) - normaliser))
        going = []
        for row, (sentence, token) in enumerate(zip(running, tokens.tolist(), strict=True)):
            if finished[sentence]:
                continue
            if token == EOS:
                finished[sentence] = True
            else:
                outputs[sentence].append(token)
                going.append(row)
        if not going:
            break
        if len(going) <= COMPACT_AT * len(running):
            keep = on_device(going, source.device)
            decoder.keep(keep)
            tokens = tokens.index_select(0, keep)
            running = [running[row] for row in going]
    return Hypotheses(outputs, _mean_gains(gains, outputs))


def _mean_gains(gains: list[tuple[list[int], Tensor]], outputs: list[list[int]]) -> list[float]:
    """Log-probability of each output and its end symbol, divided by their number; idle rows' gains are left out."""
    totals = [0.0] * len(outputs)
    columns = on_cpu(*(values for _, values in gains))
    for position, ((running, _), values) in enumerate(zip(gains, columns, strict=True)):
        for sentence, value in zip(running, values.tolist(), strict=True):
            if position <= len(outputs[sentence]):
                totals[sentence] += value
    return [total / (len(output) + 1) for total, output in zip(totals, outputs, strict=True)]


def run(
    models: Networks, source: Tensor, settings: GreedySettings, scored: bool = True, _trace: bool = False
) -> Hypotheses:
    """Translate source (B, S)."""
    return greedy(models[MODEL], source, settings.max_length_ratio, scored)
