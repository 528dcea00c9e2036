"""How many jobs an experiment has by rule, counted without Snakemake."""

from __future__ import annotations

from workflow_src.config import Plan
from workflow_src.registry import engines, metrics


def jobs(plan: Plan) -> dict[str, int]:
    """Number of jobs by rule when nothing has been made yet, from the settings alone."""
    seeds = len(plan.config.seeds)
    optional = ["clean"] if plan.loaded.cleaning else []
    if plan.reads_monolingual:
        optional += ["download_monolingual", "normalise_monolingual"]
        optional += ["clean_monolingual"] if plan.loaded.monolingual_cleaning else []
    counts = {"download": 1, **dict.fromkeys(optional, 1), "normalise": 1, "learn_subwords": 1}
    counts["encode"] = len(plan.loaded.held_out) + len(plan.encoded_texts)
    systems = plan.loaded.systems.values()
    for rule in {system.family.training_rule for system in systems if not system.family.imported}:
        counts[rule] = sum(system in plan.systems_of(rule) for system, _ in plan.trained)
    analyses = [analysis for analysis in plan.analyses.values() if analysis.enabled]
    # Analyses take the first seed, also of systems that no decode uses.
    analysed = {system for analysis in analyses for system in analysis.systems} - set(plan.exported)
    programs, computed = plan.program_settings, [file for row in plan.rows for file in plan.computed_figures(*row)]
    exports = [engine.exports for engine in engines().values()]
    counts |= {
        "import_model": len(plan.imports),
        "distill": sum(plan.distillation(teacher).shards for teacher, _ in plan.distilled),
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
