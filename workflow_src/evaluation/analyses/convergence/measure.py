"""The bound, BLEU and outputs that stand still, step by step (Shu et al. 2020, section 7.3).

The bound of an output y of source x is

    E_q[log p(y|x,z)] - KL[q(z|x,y) || p(z|x)],

the expectation a mean over draws of z ~ q(z|x,y), the KL exact. Where latents say the length, its log-probability is
part of the first term; elsewhere the bound is that of y given its length. Sentences are taken one by one and their
noise is a function of (seed, sentence) alone.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from typing import Any

import torch

from workflow_src.data.bleu import corpus_bleu
from workflow_src.evaluation.analyses.convergence import ConvergenceSettings
from workflow_src.evaluation.analyses.inputs import Inputs, gain_figures, sentence_generator, standard_error
from workflow_src.evaluation.analyses.networks import entry_settings, traces_of
from workflow_src.jobs import log
from workflow_src.losses.common import gaussian_kl
from workflow_src.nn.models import LatentModel
from workflow_src.spec import MODEL
from workflow_src.types import EOS, Batch, Networks

Output = Sequence[int]


def measure(inputs: Inputs, settings: ConvergenceSettings) -> dict[str, Any]:
    sentences, removal = inputs.sentences(settings.sentences), inputs.entries["remove_repetitions"]
    rows: list[dict[str, Any]] = []
    for entry in inputs.searches:
        translator, search = inputs.translator(entry["system"]), entry_settings(entry, settings.steps)
        traces, device = traces_of(translator, sentences.sources, search), translator.runtime.device
        sources = translator.subwords.encode_source(sentences.sources)
        networks: Networks = translator.networks(search)
        values = [
            bounds(networks[MODEL], [*ids, EOS], outputs, settings, line, device)
            for line, ids, *outputs in zip(sentences.numbers, sources, *traces, strict=True)
        ]
        columns, shares = list(zip(*values, strict=True)), [None, *stopped(traces)]
        for step, column in enumerate(columns):
            texts = translator.text(traces[step], removal, sentences.sources)
            bleu = corpus_bleu(texts, sentences.references, inputs.entries["bleu_tokeniser"])
            rows.append(entry | point(step, column, columns[0]) | {"bleu": bleu, "stopped": shares[step]})
        log.info("%s of %s: %d sentences", entry["search"], entry["system"], len(values))
    count = len(sentences.sources)
    return {"sentences": count, "samples": settings.samples, "remove_repetitions": removal, "rows": rows}


@torch.no_grad()
def bounds(
    model: LatentModel,
    source: Output,
    outputs: Sequence[Output],
    settings: ConvergenceSettings,
    sentence: int,
    device: torch.device,
) -> list[float]:
    """The bound in nats of each output of one sentence (subword ids; `source` with its end symbol).

    Equal outputs are computed once. `sentence` is a number that names the sentence.
    """
    memory = model.encode(torch.tensor([list(source)], device=device))

    @functools.cache
    def bound(output: tuple[int, ...]) -> float:
        target = torch.tensor([output], dtype=torch.int64, device=device)
        mask = model.batch_mask(Batch(memory.tokens, target))
        mean, deviation = model.posterior(memory, model.whole_target(target), mask)
        kl = float(gaussian_kl(mean, deviation, *model.prior(memory, mask)).double().sum())
        generator = sentence_generator(settings.seed, sentence)
        noise = torch.randn((settings.samples, *mean.shape[1:]), generator=generator).to(mean)
        z = mean + deviation * noise
        rows = torch.zeros(settings.samples, dtype=torch.int64, device=device)
        likelihood = model.log_likelihood(memory.select(rows), z, target.expand(settings.samples, -1))
        return float(likelihood.double().mean()) - kl

    return [bound(tuple(output)) for output in outputs]


def standstill(trace: Sequence[Output]) -> int | None:
    """The first step from which on no step that was followed changes an output, from the outputs after steps 0, 1, …;
    None where the last step changes it.

    A delta step depends on the output alone: once an output stands still, further steps change nothing. Steps of a
    network move latents, so that an output may stand still and change again.
    """
    first = len(trace)
    while first > 1 and list(trace[first - 1]) == list(trace[first - 2]):
        first -= 1
    return first if first < len(trace) else None


def stopped(traces: Sequence[Sequence[Output]]) -> list[float]:
    """Shares of sentences that stand still from steps 1, 2, … on, from traces[step][sentence]."""
    last = [standstill([step[number] for step in traces]) for number in range(len(traces[0]))]
    return [last.count(step) / len(last) for step in range(1, len(traces))]


def point(steps: int, values: Sequence[float], start: Sequence[float]) -> dict[str, Any]:
    """The bound after `steps` steps, and its gain on `start`."""
    bound = {"bound": statistics.fmean(values), "bound_error": standard_error(values)}
    return {"steps": steps} | bound | gain_figures(values, start)
