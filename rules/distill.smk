"""Teachers translate the training source, or text of the source language, in shards; models learn from the outputs."""


rule distill:
    input:
        model=lambda wildcards: plan.teacher_file(wildcards.teacher),
        subwords=SUBWORDS,
        source=plan.corpus("{split}", "source"),
    output:
        shard=plan.distilled_shard("{teacher}", "{split}", "{shard}", "{shards}"),
        record=records_of([plan.distilled_shard("{teacher}", "{split}", "{shard}", "{shards}")]),
    log:
        f"{LOGS}/distill/{{teacher}}/{{split}}-{{shard}}-of-{{shards}}.log",
    benchmark:
        f"{BENCHMARKS}/distill/{{teacher}}/{{split}}-{{shard}}-of-{{shards}}.tsv"
    wildcard_constraints:
        split=f"train|{MONOLINGUAL}",
    priority: priority_of_training
    conda:
        "../envs/gpu.yaml"
    # One thread a shard: shards beside each other are faster than threads within one.
    threads: 1
    resources:
        mem_mb=needs.memory("distill"),
        runtime=needs.minutes("distill"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
    params:
        **stage(
            "distill",
            lambda plan, wildcards: plan.settings_distillation(wildcards.teacher),
            model="input.model",
            subwords=folder_of("input.subwords"),
            source="input.source",
            shard="wildcards.shard",
            shards="wildcards.shards",
            output="output.shard",
            batch=lambda job: plan.distillation(job.wildcards.teacher).batch,
            engine=lambda job: plan.distillation(job.wildcards.teacher).engine,
        ),
    message:
        "Translating {wildcards.split} with {wildcards.teacher}, shard {wildcards.shard} of {wildcards.shards}"
    shell:
        COMMAND


rule merge_distilled:
    input:
        shards=lambda wildcards: plan.distilled_shards(wildcards.teacher, wildcards.split),
        records=lambda wildcards: records_of(plan.distilled_shards(wildcards.teacher, wildcards.split)),
        model=rules.distill.input.model,
        subwords=SUBWORDS,
        source=plan.corpus("{split}", "source"),
    output:
        text=plan.distilled_text("{teacher}", "{split}"),
        scores=plan.distilled_scores("{teacher}", "{split}"),
    log:
        f"{LOGS}/merge_distilled/{{teacher}}/{{split}}.log",
    benchmark:
        f"{BENCHMARKS}/merge_distilled/{{teacher}}/{{split}}.tsv"
    wildcard_constraints:
        split=f"train|{MONOLINGUAL}",
    priority: priority_of_training
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("merge_distilled"),
        runtime=needs.minutes("merge_distilled"),
        slurm_partition=needs.partition(gpu=False),
    params:
        **stage(
            "merge_distilled",
            lambda plan, wildcards: plan.settings_distillation(wildcards.teacher),
            shards="input.shards",
            model="input.model",
            subwords=folder_of("input.subwords"),
            source="input.source",
            output_text="output.text",
            output_scores="output.scores",
        ),
    message:
        "Joining the shards of {wildcards.split} that {wildcards.teacher} translated"
    shell:
        COMMAND
