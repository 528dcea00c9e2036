"""Costs of an experiment, from its configuration: jobs, tokens, disk, GPU-hours, hours of one core. No torch here.

Floating-point operations are counted as two for each weight of a matrix product and each position that it is applied
to; attention's own products (a few per cent at sentence lengths), embeddings, norms and the length head are left out.
A backward pass costs twice its forward pass:

    training a teacher or a latent-variable model    6 N_p     a position and update
    a score network                                  6 N_p     and the goal of frozen steps before it, 2 N_p each
    an energy network                               12 N_p     its direction is itself a gradient: forward and backward
                                                               to the latents (4), and a backward pass through both (8)
    an inference network                             6 N_p     and its frozen energy: 2 N_p of the encoder, forward and
                                                               back to what it reads 4 of the decoder, 8 of the output
    beam search                                      2 N_p     a position and hypothesis
    non-autoregressive decoding                      2 N_p     a position and step; an energy step 4

where N_p are the weights that the part in question multiplies with. Core-hours divide that by rates that were measured
on this machine (`calibration.py`). GPU-hours divide it by a range of rates of one A100 (312e12 operations a second in
bfloat16 at most): training reaches 10 to 40 % of it at width 512 and more and 3 to 15 % below, decoding 0.3 to 5 %,
because its products are small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from workflow_src.cli.calibration import Rates, load_warning
from workflow_src.cli.work import (
    GPU,
    Sizes,
    Work,
    automatic,
    core_hours,
    gpu_hours,
    length_limit,
    limit_in_words,
    numbered,
    sizes,
    total,
    work_of,
)
from workflow_src.config.costs import WIDE, parameters, updates, vocabulary_size
from workflow_src.config.plan import Plan
from workflow_src.registry import engines, metrics

BYTES_A_SUBWORD = 4.5


def jobs(plan: Plan) -> dict[str, int]:
    """Number of jobs by rule when nothing has been made yet."""
    seeds = len(plan.config.seeds)
    optional = ["clean"] if plan.loaded.cleaning else []
    optional += ["download_monolingual", "normalise_monolingual"] if plan.reads_monolingual else []
    counts = {"download": 1, **dict.fromkeys(optional, 1), "normalise": 1, "learn_subwords": 1}
    counts["encode"] = len(plan.loaded.held_out) + len(plan.encoded_texts)
    for rule in plan.training_rules:
        counts[rule] = sum(system in plan.systems_of(rule) for system, _ in plan.trained)
    analyses = [analysis for analysis in plan.analyses.values() if analysis.enabled]
    # Analyses take the first seed, also of systems that no decode uses.
    analysed = {system for analysis in analyses for system in analysis.systems} - set(plan.exported)
    programs, computed = plan.program_settings, [file for row in plan.rows for file in plan.computed_figures(*row)]
    exports = [engine.exports for engine in engines().values()]
    counts |= {
        "import_model": len(plan.imports),
        "distill": sum(plan.shards(teacher) for teacher, _ in plan.distilled),
        "merge_distilled": len(plan.distilled),
        "score_pairs": sum(plan.likelihood(system).shards for system in plan.scoring),
        "keep_likely": len(plan.scorers),
        "export_bundle": seeds * len(set(plan.exported) - set(plan.imported)) + len(analysed),
        "choose_settings": len(plan.tuned),
        "finish_bundle": len(plan.finished),
        **{f"export_{folder}": seeds * len(plan.exported_to(folder)) for folder in exports if folder},
        "decode": len(plan.rows),
        "decode_shard": sum(decode.shards for decode, _, _ in plan.rows if decode.shards > 1),
        **{metrics()[name].rule: len(computed) // len(programs) for name in programs},
        "score_quality": len(plan.rows),
        **{plan.rule_on("compare_rows", name): 1 for name in plan.compared_sets},
        "measure_speed": 1,
        "analyse": 1,
        **{analysis.rule: 1 for analysis in analyses},
        "report": 1,
    }
    return {rule: count for rule, count in counts.items() if count}


def _row(
    plan: Plan,
    label: str,
    work: Sequence[Work | None],
    rates: Rates | None,
    parameters: int | None,
    tokens: float | None,
) -> dict[str, Any]:
    """Operations and hours of several jobs; None where they are not known."""
    counted = [job for job in work if job and job.operations is not None]
    ranges = [hours for job in counted if (hours := gpu_hours(plan, job))]
    return {
        "work": label,
        "parameters": parameters,
        "tokens": tokens,
        "operations": total([job.operations for job in counted]) if counted else None,
        "hours": tuple(math.fsum(ends) for ends in zip(*ranges, strict=True)) if ranges else None,
        "core_hours": total([core_hours(rates, job) for job in counted]) if rates and counted else None,
    }


def _rows(plan: Plan, sizes: Sizes, rates: Rates | None) -> list[dict[str, Any]]:
    """Rows of each system's training with all seeds, each distillation, choosing settings and decoding."""
    subwords = plan.recipe.subwords
    rows: list[dict[str, Any]] = []
    for system in plan.loaded.systems.values():
        if system.family.imported:
            continue
        seeds = sum(name == system.name for name, _ in plan.trained)
        work = [work_of(plan, system.family.training_rule, {"system": system.name}, sizes)] * seeds
        weights = parameters(system, vocabulary_size(plan), subwords.joint)
        tokens: float | None = updates(system) * system.training.batch_tokens * seeds
        row = _row(plan, f"train {system.name}", work, rates, weights, tokens)
        rows.append(row | {"updates": updates(system)})
    for teacher, split in plan.distilled:
        work = [work_of(plan, "distill", {"teacher": teacher, "split": split, "shards": "1"}, sizes)]
        sentences = sizes.sentences(split)
        tokens = sentences * sizes.length if sentences else None
        text = "" if split == "train" else f"{split} "
        rows.append(_row(plan, f"distil {text}with {teacher}", work, rates, None, tokens))
    for scorer in plan.scoring:
        work = [work_of(plan, "score_pairs", {"system": scorer, "shards": "1"}, sizes)]
        tokens = sizes.pairs * sizes.length if sizes.pairs else None
        rows.append(_row(plan, f"score pairs with {scorer}", work, rates, None, tokens))
    choosing = [
        work_of(plan, "choose_settings", {"system": decode.system, "search": plan.folder(decode)}, sizes)
        for decode, _ in plan.tuned
    ]
    if choosing:
        rows.append(_row(plan, "choose settings", choosing, rates, None, None))
    # Shards of a decode are as much work together as the decode is.
    translating = [
        work_of(plan, "decode_shard", {"system": decode.system, "search": plan.folder(decode), "split": split}, sizes)
        for decode, _, split in plan.rows
    ]
    return [*rows, _row(plan, "decode", translating, rates, None, None)]


def _disk(plan: Plan, pairs: int | None, length: float) -> float:
    """Bytes: texts (raw, normalised, distilled), arrays, and for each system its weights, bundle and training state.

    Weights of models made elsewhere are taken to be in float32.
    """
    subwords = plan.recipe.subwords
    texts = 0.0
    if pairs:
        characters = pairs * length * BYTES_A_SUBWORD
        texts = characters * (4 + len(plan.distilled)) + len(plan.texts) * pairs * 2 * length * 4
    models = 4.0 * sum(parameters(plan.system(name), vocabulary_size(plan), subwords.joint) for name, _ in plan.imports)
    for system in plan.loaded.systems.values():
        weights = 4.0 * parameters(system, vocabulary_size(plan), subwords.joint)
        frozen_systems = map(plan.system, system.served_with.values())
        frozen = 4.0 * sum(parameters(other, vocabulary_size(plan), subwords.joint) for other in frozen_systems)
        averaged = system.training.average_last if system.training.keep == "average" else 1
        # Final weights, the bundle (with other roles), two states of weights and two moments, and validated weights.
        models += (2 * weights + frozen + 2 * 3 * weights + averaged * weights) * sum(
            name == system.name for name, _ in plan.trained
        )
    return texts + models


def estimate(
    plan: Plan, pairs: int | None = None, length: float | None = None, rates: Rates | None = None
) -> dict[str, Any]:
    """Jobs, tokens, operations, hours and bytes of an experiment, of all its work, done or not.

    `pairs` (training pairs) and `length` (mean subwords of a sentence) replace the counts of the encoded corpus. Before
    there is one, numbers of the dataset, of the user's texts, or defaults are taken. Where pairs are not known,
    distillation is None. `hours` are GPU-hours, at least and at most; `core_hours` those of one core of this machine,
    None without `rates`. Raises ConfigError where a size is auto and pairs are not known.
    """
    corpus, settings = sizes(plan, pairs, length), automatic(plan)
    limit = length_limit(plan, corpus.sampled)
    plan = numbered(plan, corpus)
    work = _rows(plan, corpus, rates)
    ranges = [row["hours"] for row in work if row["hours"]]
    return {
        "experiment": plan.experiment,
        "jobs": jobs(plan),
        "pairs": corpus.pairs,
        "length": corpus.length,
        "sources": dict(corpus.sources),
        "vocabulary_size": plan.recipe.subwords.vocabulary_size,
        "auto": settings,
        "max_length": limit,
        "training_tokens": sum(row["tokens"] for row in work if row["work"].startswith("train ")),
        "work": work,
        "hours": (sum(low for low, _ in ranges), sum(high for _, high in ranges)),
        "core_hours": total([row["core_hours"] for row in work]) if rates else None,
        "after": _after(plan),
        "warning": load_warning(rates) if rates else "",
        "gpu": GPU,
        "disk_bytes": _disk(plan, corpus.pairs, corpus.length),
    }


def _after(plan: Plan) -> dict[str, list[str]]:
    """Systems that a training waits for, by the trained system."""
    systems = [system for system in plan.loaded.systems.values() if not system.family.imported]
    waited = {system.name: [name for name in system.built_on if name not in plan.imported] for system in systems}
    return {name: list(dict.fromkeys(names)) for name, names in waited.items() if names}


def as_text(result: dict[str, Any]) -> str:
    """The estimate as lines to read."""
    counts = result["jobs"]
    lines = [f"experiment {result['experiment']}: {sum(counts.values())} jobs"]
    lines += [f"  {count:6d}  {rule}" for rule, count in counts.items()]
    cores = result["core_hours"] is not None
    lines += ["", f"{'work':24} {'parameters':>12} {'tokens':>12} {'operations':>12}   {'GPU-hours':24}"]
    lines[-1] = f"{lines[-1]} core-hours" if cores else lines[-1].rstrip()
    everything = {"work": "all", "parameters": None, "tokens": result["training_tokens"], "operations": None}
    everything |= {"hours": result["hours"], "core_hours": result["core_hours"]}
    for row in [*result["work"], everything]:
        figures = [_short(row[key]) for key in ("parameters", "tokens", "operations")]
        line = f"{row['work']:24} " + " ".join(f"{figure:>12}" for figure in figures) + f"   {_range(row['hours']):24}"
        lines.append(f"{line} {duration(row['core_hours']):>10}" if cores else line.rstrip())
    lines += [
        "",
        f"disk: about {result['disk_bytes'] / 1e9:.1f} GB, downloads not counted",
        f"GPU-hours: of one {result['gpu']}, at 10 to 40 % of its peak in training (3 to 15 % below width {WIDE}) and",
        "0.3 to 5 % in decoding. Tokens are target positions with padding; operations count matrix products alone.",
    ]
    if cores:
        lines += [
            "Core-hours: of one core of this machine, from updates and searches of these networks timed here.",
            "Validation adds up to a third to training; CTranslate2 and ONNX Runtime decode faster than counted here.",
        ]
    lines += [result["warning"]] if result["warning"] else []
    if result["after"]:
        waiting = "; ".join(f"{name} for {', '.join(others)}" for name, others in result["after"].items())
        lines.append(f"Trainings that wait for others, while cores may be idle: {waiting}.")
    lines += [
        "Hours of analyses and of measuring speed are not counted.",
        f"Subwords a sentence: {result['length']:.3g} ({result['sources']['length']})."
        + (f" Training pairs: {result['pairs']:,} ({result['sources']['pairs']})." if result["pairs"] else ""),
    ]
    if result["max_length"]:
        lines.append(limit_in_words(result["max_length"]))
    if result["auto"]:
        trained = (row for row in result["work"] if row.get("updates"))
        updates = (f"{row['work'].removeprefix('train ')} {row['updates']:,}" for row in trained)
        lines.append(
            f"Settings that are auto come to about: updates {', '.join(updates)}; "
            f"{result['vocabulary_size']:,} subwords in the vocabulary."
        )
    if result["pairs"] is None and any(row["hours"] is None for row in result["work"]):
        lines.append("Distillation is not counted: the number of training pairs is not known; give --pairs.")
    return "\n".join(lines)


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    for limit, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.3g}"


def duration(hours: float | None) -> str:
    """Hours in words of a fitting unit: `5.4 h`, `12 min`, `8 s`, or `not known`."""
    if hours is None:
        return "not known"
    if hours >= 1:
        return f"{hours:.1f} h" if hours < 100 else f"{hours:.0f} h"
    return f"{60 * hours:.0f} min" if hours >= 1 / 60 else f"{3600 * hours:.0f} s"


def _range(hours: tuple[float, float] | None) -> str:
    if hours is None:
        return "not known"
    return " to ".join(f"{value:.1f}" if value >= 0.1 else "under 0.1" for value in hours)
