"""Energies of outputs, -log p(y|x) under a system that scores (Tu et al. 2020, section 3)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from workflow_src.config.resolved import Decode
from workflow_src.data.batching import pad
from workflow_src.data.repetitions import collapse_repetitions
from workflow_src.data.subwords import Subwords
from workflow_src.evaluation.analyses.energies import EnergiesSettings, names
from workflow_src.evaluation.analyses.inputs import Inputs, read_outputs, standard_error, target_ids
from workflow_src.evaluation.analyses.networks import at_lengths, translate_with
from workflow_src.evaluation.quality import metrics
from workflow_src.jobs import log
from workflow_src.nn.models import Scorer
from workflow_src.serving.translator import Translator
from workflow_src.spec import parse


def measure(inputs: Inputs, settings: EnergiesSettings) -> dict[str, Any]:
    scorers = {name: inputs.translator(name) for name in names(inputs.entries["scorer"])}
    subwords = next(iter(scorers.values())).subwords
    source, target, references = inputs.columns()
    sources, targets = subwords.encode_source(source), subwords.encode_target(target, source)
    ids = target_ids(subwords)
    described: list[dict[str, Any]] = [{"label": "references"}]
    outputs = [targets]
    for row in inputs.rows:
        removal = row["repetitions_removed"]
        outputs.append(collapsed(removal, read_outputs(Path(row["details"]), ids, len(sources)), subwords, source))
        described.append({key: row[key] for key in ("system", "name", "seed", "repetitions_removed")})
    for entry in inputs.searches:
        removal, translator = entry["repetitions_removed"], inputs.translator(entry["system"])
        tokens = translate_at_lengths(translator, entry["settings"], sources, targets, settings.batch)
        language, tokeniser = translator.description.languages.target, inputs.entries["bleu_tokeniser"]
        bleu = metrics.bleu_by_convention(translator.text(tokens, removal, source), references, language, tokeniser)
        # Symbols that the model's family adds to the vocabulary are none of the scorer's.
        scorer_ids = [[ids[piece] for piece in subwords.pieces_target(output)] for output in tokens]
        described.append({key: entry[key] for key in ("system", "name", "repetitions_removed")} | bleu)
        outputs.append(collapsed(removal, scorer_ids, subwords, source))
        log.info("%s %s at the references' lengths: BLEU %.2f", entry["system"], entry["name"], bleu["bleu"])
    rows: list[list[dict[str, Any]]] = [[] for _ in described]
    for name, scorer in scorers.items():
        network: Any = scorer.network
        values = [energies(network, sources, ours, settings.batch, scorer.runtime.device) for ours in outputs]
        log.info("%s scored %d outputs of %d sentences", name, len(outputs), len(sources))
        for listed, entry, figures in zip(rows, described, summaries(outputs, values), strict=True):
            listed.append(entry | {"scorer": name} | figures)
    in_main_table = 1 + len(inputs.rows)
    removed = {entry["repetitions_removed"] for entry in inputs.searches}
    return {
        "rows": list(itertools.chain(*rows[:in_main_table])),
        "at_reference_lengths": list(itertools.chain(*rows[in_main_table:])),
        "remove_repetitions": removed.pop() if removed else "none",
    }


def collapsed(removal: str, rows: list[list[int]], subwords: Subwords, source: list[str]) -> list[list[int]]:
    """Outputs as tables score them: without the repetitions that `removal` names."""
    if removal == "subwords":
        return subwords.without_repetitions(rows)
    if removal == "words":
        texts = [collapse_repetitions(text) for text in subwords.decode_target(rows, source)]
        return subwords.encode_target(texts, source)
    return rows


def translate_at_lengths(
    translator: Translator, settings: dict[str, Any], sources: list[list[int]], targets: list[list[int]], batch: int
) -> list[list[int]]:
    """Outputs (subword ids) of a search, with `settings` as rules have them, at the lengths of `targets`.

    Lengths are at least 1, as in training, and at most the longest that the model's length head knows. An empty source
    gives an empty output.
    """
    search = at_lengths(translator, parse(Decode, settings).values)
    numbers = [number for number, source in enumerate(sources) if source]
    lengths = [max(1, min(len(targets[number]), search.model.length.longest)) for number in numbers]
    tokens = translate_with(search, [sources[number] for number in numbers], lengths, batch, translator.runtime.device)
    translations = dict(zip(numbers, tokens, strict=True))
    return [translations.get(number, []) for number in range(len(sources))]


@torch.no_grad()
def energies(
    scorer: Scorer, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], batch: int, device: Any
) -> list[float | None]:
    """-log p(y|x) in nats of an output for each source (subword ids without end symbols), ends counted.

    None where the system cannot score it: an empty source, a sequence longer than its positions, an impossible output.
    `batch` sentences are scored together, which changes nothing.
    """
    limit = scorer.config.max_positions - 1
    scorable = [i for i, source in enumerate(sources) if source and max(len(source), len(outputs[i])) <= limit]
    scorable.sort(key=lambda i: (len(outputs[i]), len(sources[i])))
    values: list[float | None] = [None] * len(sources)
    for start in range(0, len(scorable), batch):
        rows = scorable[start : start + batch]
        states = scorer.scoring_states(pad([sources[i] for i in rows], eos=True).to(device))
        target = pad([outputs[i] for i in rows], eos=False).to(device)
        for i, value in zip(rows, scorer.log_probability(states, target).tolist(), strict=True):
            values[i] = -value if math.isfinite(value) else None
    return values


def summaries(
    outputs: Sequence[Sequence[Sequence[int]]], energies: Sequence[Sequence[float | None]]
) -> list[dict[str, Any]]:
    """Energies under one scorer, for each of several outputs of the same sentences.

    Means are over the sentences of which it can score every output, so that they compare. Outputs of which it can score
    none have no mean.
    """
    usable = [values for values in energies if any(value is not None for value in values)]
    common = [number for number, values in enumerate(zip(*usable, strict=True)) if None not in values]
    return [
        summary(values, ours, common if values in usable else [])
        for values, ours in zip(energies, outputs, strict=True)
    ]


def summary(
    values: Sequence[float | None], outputs: Sequence[Sequence[int]], sentences: Sequence[int]
) -> dict[str, Any]:
    """Energy over some sentences, all of which have a value; tokens are counted with end symbols."""
    scored = [value for number in sentences if (value := values[number]) is not None]
    counts: dict[str, Any] = {"sentences": len(scored), "unscored": sum(value is None for value in values)}
    if not scored:
        return counts | {"energy_per_sentence": None, "error": None, "energy_per_token": None}
    tokens = sum(len(outputs[number]) + 1 for number in sentences)
    return counts | {
        "energy_per_sentence": sum(scored) / len(scored),
        "error": standard_error(scored),
        "energy_per_token": sum(scored) / tokens,
    }
