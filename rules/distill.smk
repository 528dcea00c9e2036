"""Teachers translate the training source, or text of the source language, in shards; models learn from the outputs."""


use rule gpu as distill with:
    input:
        model=lambda wildcards: plan.teacher_file(wildcards.teacher),
        subwords=rules.learn_subwords.output.summary,
        source=FILES.source,
    output:
        shard=FILES.distilled_shard,
        record=records_of([FILES.distilled_shard]),
    log:
        f"{LOGS}/distill/{{teacher}}/{{split}}-{{shard}}-of-{{shards}}.log",
    benchmark:
        f"{BENCHMARKS}/distill/{{teacher}}/{{split}}-{{shard}}-of-{{shards}}.tsv"
    wildcard_constraints:
        split=f"train|{MONOLINGUAL}",
    priority: priority_of_training
    # One thread a shard: shards beside each other are faster than threads within one.
    params:
        **params.distillation,
    message:
        "Translating {wildcards.split} with {wildcards.teacher}, shard {wildcards.shard} of {wildcards.shards}"


use rule cpu as merge_distilled with:
    input:
        unpack(plan.distilled_inputs),
        model=rules.distill.input.model,
        subwords=rules.learn_subwords.output.summary,
        source=FILES.source,
    output:
        text=FILES.distilled_text,
        scores=FILES.distilled_scores,
        record=records_of([FILES.distilled_text]),
    log:
        f"{LOGS}/merge_distilled/{{teacher}}/{{split}}.log",
    benchmark:
        f"{BENCHMARKS}/merge_distilled/{{teacher}}/{{split}}.tsv"
    wildcard_constraints:
        split=f"train|{MONOLINGUAL}",
    priority: priority_of_training
    params:
        **params.merging,
    message:
        "Joining the shards of {wildcards.split} that {wildcards.teacher} translated"
