"""Marginal log-probability of an output, by importance sampling (Lee et al. 2020, section 5.2; Burda et al. 2016).

    log p(y|x) = log E_q[p(y|z,x) p(z|x) / q(z|y,x)]
               ~ logsumexp_k[log p(y|z_k,x) + log p(z_k|x) - log q(z_k|y,x)] - log K

with z_k ~ q(z|y,x), given the length |y|, whose own probability is left out. Sentences are taken one by one and their
noise is a function of (seed, sentence) alone, so that nothing else influences an estimate; outputs of a sentence that
have the same length share their noise, which makes differences between them more exact than the values.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from workflow_src.evaluation.analyses.inputs import (
    Inputs,
    Sentences,
    gain_figures,
    inspected_steps,
    sentence_generator,
)
from workflow_src.evaluation.analyses.marginal import MarginalSettings
from workflow_src.evaluation.analyses.networks import entry_settings, traces_of
from workflow_src.jobs import log
from workflow_src.nn.layers import Memory
from workflow_src.nn.models import LatentModel
from workflow_src.spec import MODEL
from workflow_src.types import EOS, Networks


def measure(inputs: Inputs, settings: MarginalSettings) -> dict[str, Any]:
    sentences, steps = inputs.sentences(settings.sentences), inspected_steps(settings.steps)
    rows: list[dict[str, Any]] = []
    # Outputs of all searches of one model together: the prior mean's, and many others, are the same.
    for model in dict.fromkeys(entry["model"] for entry in inputs.searches):
        entries = [entry for entry in inputs.searches if entry["model"] == model]
        estimates = _estimates(inputs, settings, entries, sentences, steps)
        for place, entry in enumerate(entries):
            of_sentences = [of_sentence[place] for of_sentence in estimates]
            columns = list(zip(*of_sentences, strict=True))
            rows += [entry | point(step, column, columns[0]) for step, column in zip(steps, columns, strict=True)]
    return {"sentences": len(sentences.sources), "samples": settings.samples, "rows": rows}


def _estimates(
    inputs: Inputs, settings: MarginalSettings, entries: list[dict[str, Any]], sentences: Sentences, steps: list[int]
) -> list[list[list[Estimate]]]:
    """estimates[sentence][entry][step] of searches that refine the latents of one model."""
    translator = inputs.translator(entries[0]["system"])
    networks: Networks = translator.networks(entry_settings(entries[0], 0))
    traces = [
        traces_of(inputs.translator(entry["system"]), sentences.sources, entry_settings(entry, steps[-1]))
        for entry in entries
    ]
    estimates = []
    for number, ids in enumerate(translator.subwords.encode_source(sentences.sources)):
        outputs, line = [trace[step][number] for trace in traces for step in steps], sentences.numbers[number]
        results = marginals(networks[MODEL], [*ids, EOS], outputs, settings, line, translator.runtime.device)
        estimates.append([results[i : i + len(steps)] for i in range(0, len(results), len(steps))])
        if (number + 1) % 50 == 0:
            log.info("%s: %d of %d sentences", entries[0]["model"], number + 1, len(sentences.sources))
    return estimates


@dataclasses.dataclass(frozen=True)
class Estimate:
    """log p(y|x) in nats, its standard error from sampling z, and the effective samples, (sum w)^2 / sum w^2."""

    value: float
    error: float
    effective: float


def gaussian_log_ratio(z: Tensor, noise: Tensor, mean_p: Tensor, deviation_p: Tensor, deviation_q: Tensor) -> Tensor:
    """log p(z) - log q(z) of diagonal Gaussians, with z = mean_q + deviation_q * noise; (K, T, Z) -> (K,), in nats."""
    log_p = -0.5 * ((z - mean_p) / deviation_p) ** 2 - deviation_p.log()
    log_q = -0.5 * noise**2 - deviation_q.log()
    return (log_p - log_q).flatten(1).sum(1)


@torch.no_grad()
def log_weights(model: LatentModel, memory: Memory, target: Tensor, noise: Tensor, chunk: int) -> Tensor:
    """Logarithms (K,) of the importance weights of one output, in float64.

    `memory` is that of one sentence; target (1, T), words; noise (K, T, Z), standard normal. Never more
    than `chunk` samples are decoded together, which bounds memory by chunk * T * V logits.
    """
    whole = model.whole_target(target)
    mask = torch.ones_like(whole, dtype=torch.bool)
    mean_p, deviation_p = (tensor.double() for tensor in model.prior(memory, mask))
    mean_q, deviation_q = (tensor.double() for tensor in model.posterior(memory, whole, mask))
    logarithms = []
    for draws in noise.double().split(chunk):
        rows = torch.zeros(len(draws), dtype=torch.long, device=target.device)
        z = mean_q + deviation_q * draws
        words = target.expand(len(draws), -1)
        reconstruction = model.log_likelihood(memory.select(rows), z.to(noise.dtype), words)
        logarithms.append(reconstruction.double() + gaussian_log_ratio(z, draws, mean_p, deviation_p, deviation_q))
    return torch.cat(logarithms)


def estimate(log_weights: Tensor) -> Estimate:
    """The estimate that K >= 2 log-weights give.

    The error is that of the delta method: the deviation of the weights over their mean and the root of K.
    """
    count = log_weights.numel()
    value = torch.logsumexp(log_weights, 0) - math.log(count)
    relative = (log_weights - value).exp()  # of mean 1
    effective = relative.sum() ** 2 / (relative**2).sum()
    return Estimate(float(value), float(relative.std()) / math.sqrt(count), float(effective))


@torch.no_grad()
def marginals(
    model: LatentModel,
    source: Sequence[int],
    outputs: Sequence[Sequence[int]],
    settings: MarginalSettings,
    sentence: int,
    device: torch.device,
) -> list[Estimate]:
    """An estimate for each output of one sentence (subword ids; `source` with its end symbol).

    A model whose targets have an end symbol scores the output with one after its last word: other positions of
    end symbols give the same words, and their probability is left out. Only such a model takes an empty output.

    Equal outputs have equal estimates and are computed once. `sentence` is a number that names the sentence.
    """
    memory = model.encode(torch.tensor([list(source)], device=device))

    @functools.cache
    def estimated(output: tuple[int, ...]) -> Estimate:
        target = torch.tensor([output], dtype=torch.int64, device=device)
        positions, width = len(output) + model.extra_positions, model.config.latent_dim
        # All at once, so that the size of chunks changes nothing: K * T * Z numbers are little beside logits.
        generator = sentence_generator(settings.seed, sentence)
        noise = torch.randn((settings.samples, positions, width), generator=generator)
        return estimate(log_weights(model, memory, target, noise.to(device), settings.chunk))

    return [estimated(tuple(output)) for output in outputs]


def point(steps: int, estimates: Sequence[Estimate], start: Sequence[Estimate]) -> dict[str, Any]:
    """Figures after `steps` steps, with the gain on `start`, L = 0.

    `error` is the standard error of the mean from sampling z alone.
    """
    values = [e.value for e in estimates]
    return {
        "steps": steps,
        "log_probability": statistics.fmean(values),
        "error": math.sqrt(sum(e.error**2 for e in estimates)) / len(values),
        "effective_samples": statistics.median(e.effective for e in estimates),
    } | gain_figures(values, [e.value for e in start])
