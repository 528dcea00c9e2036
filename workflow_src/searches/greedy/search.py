"""Greedy search over a cached autoregressive decoder, batched.

A hypothesis is scored by its log-probability divided by the number of tokens, end symbol counted.
"""

from __future__ import annotations

import torch

from workflow_src.decoding.steps import Record, Records, State, StepSearch
from workflow_src.types import EOS, Hypotheses, wide


class Greedy(StepSearch):
    """The most probable next token, again and again.

    Scores are log-probability / tokens; without `scored` they are 0, which spares a normalisation a step.
    """

    # Copying the cache costs more than a few idle rows.
    idle = 0.15

    def step(self, state: State) -> Record:
        """Records the tokens (B,) and, with `scored`, their log-probabilities (B,)."""
        logits = state.decoder.step(state.tokens)
        normaliser = wide(logits).logsumexp(-1) if self.scored else None
        # Padding and the start symbol (ids below EOS) are no words; their probability stays in the normaliser.
        logits.narrow(1, 0, EOS).fill_(float("-inf"))
        best, tokens = logits.max(-1)
        full = state.full()
        if full is not None:
            tokens = tokens.masked_fill(full, EOS)
            best = torch.where(full, logits[:, EOS], best)
        state.tokens, state.position = tokens, state.position + 1
        state.done = state.done | (tokens == EOS)
        return (state.done, tokens) if normaliser is None else (state.done, tokens, wide(best) - normaliser)

    def read(self, records: Records, count: int) -> Hypotheses:
        outputs: list[list[int]] = [[] for _ in range(count)]
        totals, complete = [0.0] * count, [False] * count
        for sentences, record in records:
            tokens, *gains = (column.tolist() for column in record[1:])
            for row, sentence in enumerate(sentences):
                if complete[sentence]:
                    continue
                if self.scored:
                    totals[sentence] += gains[0][row]
                if tokens[row] == EOS:
                    complete[sentence] = True
                else:
                    outputs[sentence].append(tokens[row])
        return Hypotheses(outputs, [total / (len(words) + 1) for total, words in zip(totals, outputs, strict=True)])
