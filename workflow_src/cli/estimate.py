"""What an experiment costs, from its configuration alone: jobs, tokens, disk, GPU-hours. No torch here.

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

where N_p are the weights that the part in question multiplies with. Hours divide that by a range of rates of one
A100 (312e12 operations a second in bfloat16 at most): training reaches 10 to 40 % of it at width 512 and more and 3 to
15 % below, decoding 0.3 to 5 %, because its products are small.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from workflow_src.config.costs import (
    HELD_OUT,
    WIDE,
    decode_operations,
    decoding_operations,
    operations_a_position,
    parameters,
    sentence_length,
    training_pairs,
)
from workflow_src.config.plan import Plan
from workflow_src.config.resolved import Decode, System
from workflow_src.records.atomic import ArtifactError, read_json
from workflow_src.registry import engines

PEAK = 312e12
GPU = "NVIDIA A100 in bfloat16"
TRAINING_SHARE = {"wide": (0.10, 0.40), "narrow": (0.03, 0.15)}
DECODING_SHARE = (0.003, 0.05)
BYTES_A_SUBWORD = 4.5


def jobs(plan: Plan) -> dict[str, int]:
    """Number of jobs by rule when nothing has been made yet."""
    seeds = len(plan.config.seeds)
    systems = plan.loaded.systems.values()
    counts = {"download": 1, "normalise": 1, "learn_subwords": 1, "encode": 1 + len({s.data for s in systems})}
    for rule in plan.training_rules:
        counts[rule] = sum(system in plan.systems_of(rule) for system, _ in plan.trained)
    analyses = [analysis for analysis in plan.analyses.values() if analysis.enabled]
    # Analyses take the first seed, also of systems that no decode uses.
    extra = {system for analysis in analyses for system in analysis.systems} - set(plan.exported)
    counts |= {
        "distill": sum(plan.shards(teacher) for teacher in plan.teachers),
        "merge_distilled": len(plan.teachers),
        "export_bundle": seeds * len(plan.exported) + len(extra),
        "choose_settings": len(plan.tuned),
        "finish_bundle": len(plan.finished),
        **{e.export_rule: seeds * len(plan.exported_to(e.exports)) for e in engines().values() if e.exports},
        "decode": len(plan.rows),
        "decode_shard": sum(decode.shards for decode, _, _ in plan.rows if decode.shards > 1),
        "score_quality": len(plan.rows),
        "compare_rows": 1,
        "measure_speed": 1,
        "analyse": 1,
        **{analysis.rule: 1 for analysis in analyses},
        "report": 1,
    }
    return {rule: count for rule, count in counts.items() if count}


def _hours(operations: float, shares: tuple[float, float]) -> tuple[float, float]:
    low, high = shares
    return operations / (PEAK * high) / 3600, operations / (PEAK * low) / 3600


def _system_row(plan: Plan, system: System) -> dict[str, Any]:
    """Tokens, operations and hours of training one system with all seeds."""
    training = system.training
    seeds = sum(name == system.name for name, _ in plan.trained)
    tokens = training.max_steps * training.batch_tokens * seeds
    operations = tokens * operations_a_position(system, plan)
    subwords = plan.recipe.subwords
    return {
        "work": f"train {system.name}",
        "parameters": parameters(system, subwords.vocabulary_size, subwords.joint),
        "tokens": tokens,
        "operations": operations,
        "hours": _hours(operations, TRAINING_SHARE["wide" if getattr(system.model, "dim", 0) >= WIDE else "narrow"]),
    }


def _decode_operations(plan: Plan, decode: Decode, length: float) -> float:
    sentences = plan.recipe.limits.get("test") or plan.loaded.dataset.generator.get("test") or HELD_OUT
    runs = len(decode.splits) * len(plan.config.seeds)
    return runs * decode_operations(plan, decode, sentences, length)


def _disk(plan: Plan, pairs: int | None, length: float) -> float:
    """Bytes: texts (raw, normalised, distilled), arrays, and for each system its weights, bundle and training state."""
    subwords = plan.recipe.subwords
    texts = 0.0
    if pairs:
        characters = pairs * length * BYTES_A_SUBWORD
        texts = characters * (4 + len(plan.teachers)) + len(plan.texts) * pairs * 2 * length * 4
    models = 0.0
    for system in plan.loaded.systems.values():
        weights = 4.0 * parameters(system, subwords.vocabulary_size, subwords.joint)
        others = map(plan.system, system.served_with.values())
        frozen = 4.0 * sum(parameters(other, subwords.vocabulary_size, subwords.joint) for other in others)
        averaged = system.training.average_last if system.training.keep == "average" else 1
        # Final weights, the bundle (with other roles), two states of weights and two moments, and validated weights.
        models += (2 * weights + frozen + 2 * 3 * weights + averaged * weights) * sum(
            name == system.name for name, _ in plan.trained
        )
    return texts + models


def encoded_counts(plan: Plan) -> tuple[int, float] | None:
    """Training pairs and mean subwords of a sentence (of both languages) as encoding counted them; None before that."""
    summary = Path(f"{plan.encoded('raw', 'train')}.json")
    if not summary.exists():
        return None
    found = read_json(summary)
    try:
        return found["pairs"], (found["source_tokens"] + found["target_tokens"]) / (2 * found["pairs"])
    except (KeyError, TypeError, ZeroDivisionError):
        raise ArtifactError(f"{summary} does not describe an encoded corpus; encode it again, or delete it.") from None


def estimate(plan: Plan, pairs: int | None = None, length: float | None = None) -> dict[str, Any]:
    """Jobs, tokens, operations, GPU-hours and bytes of an experiment, of all its work, done or not.

    `pairs` (training pairs) and `length` (mean subwords of a sentence) replace what was counted when the corpus was
    encoded; before that, what the dataset says or is assumed. Where pairs are not known at all, distillation is None.
    """
    counted = encoded_counts(plan) or (None, None)
    otherwise = ("counted", "counted") if counted[0] else ("stated by the dataset", "assumed")
    sources = {"pairs": "given" if pairs else otherwise[0], "length": "given" if length else otherwise[1]}
    pairs, length = pairs or counted[0], length or counted[1]
    pairs, length = training_pairs(plan, pairs), sentence_length(plan, length)
    work = [_system_row(plan, system) for system in plan.loaded.systems.values()]
    for teacher in plan.teachers:
        search = plan.distillation(teacher).search_settings()
        operations = decoding_operations(plan, plan.system(teacher), search, pairs, length) if pairs else None
        work.append(
            {
                "work": f"distil with {teacher}",
                "parameters": None,
                "tokens": pairs * length if pairs else None,
                "operations": operations,
                "hours": _hours(operations, DECODING_SHARE) if pairs else None,
            }
        )
    decoding = math.fsum(_decode_operations(plan, decode, length) for decode in plan.loaded.decodes)
    work.append(
        {
            "work": "decode",
            "parameters": None,
            "tokens": None,
            "operations": decoding,
            "hours": _hours(decoding, DECODING_SHARE),
        }
    )
    known = [row["hours"] for row in work if row["hours"]]
    return {
        "experiment": plan.experiment,
        "jobs": jobs(plan),
        "pairs": pairs,
        "length": length,
        "sources": sources,
        "training_tokens": sum(row["tokens"] for row in work if row["work"].startswith("train ")),
        "work": work,
        "hours": (sum(low for low, _ in known), sum(high for _, high in known)),
        "gpu": GPU,
        "disk_bytes": _disk(plan, pairs, length),
    }


def as_text(result: dict[str, Any]) -> str:
    """The estimate as lines to read."""
    counts = result["jobs"]
    lines = [f"experiment {result['experiment']}: {sum(counts.values())} jobs"]
    lines += [f"  {count:6d}  {rule}" for rule, count in counts.items()]
    lines += ["", f"{'work':24} {'parameters':>12} {'tokens':>12} {'operations':>12}   GPU-hours"]
    for row in result["work"]:
        figures = [_short(row[key]) for key in ("parameters", "tokens", "operations")]
        lines.append(
            f"{row['work']:24} " + " ".join(f"{figure:>12}" for figure in figures) + f"   {_range(row['hours'])}"
        )
    lines += [
        f"{'all':24} {'':12} {_short(result['training_tokens']):>12} {'':12}   {_range(result['hours'])}",
        "",
        f"disk: about {result['disk_bytes'] / 1e9:.1f} GB, downloads not counted",
        f"GPU-hours: of one {result['gpu']}, at 10 to 40 % of its peak in training (3 to 15 % below width {WIDE}) and",
        "0.3 to 5 % in decoding. Tokens are target positions with padding; operations count matrix products alone.",
        "Hours of analyses and of measuring speed are not counted.",
        f"Subwords a sentence: {result['length']:.3g} ({result['sources']['length']})."
        + (f" Training pairs: {result['pairs']:,} ({result['sources']['pairs']})." if result["pairs"] else ""),
    ]
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


def _range(hours: tuple[float, float] | None) -> str:
    if hours is None:
        return "not known"
    return " to ".join(f"{value:.1f}" if value >= 0.1 else "under 0.1" for value in hours)
