"""Teachers translate the training source, in shards; their outputs replace the references in training."""


rule distill:
    input:
        model=lambda wildcards: plan.teacher_file(wildcards.teacher),
        subwords=SUBWORDS,
        source=plan.corpus("train", "source"),
    output:
        shard=plan.distilled_shard("{teacher}", "{shard}", "{shards}"),
    log:
        f"{LOGS}/distill/{{teacher}}-{{shard}}-of-{{shards}}.log",
    benchmark:
        f"{BENCHMARKS}/distill/{{teacher}}-{{shard}}-of-{{shards}}.tsv"
    conda:
        "../envs/gpu.yaml"
    # One thread a shard: shards beside each other are faster than threads within one.
    threads: 1
    resources:
        mem_mb=needs.memory("distill"),
        runtime=needs.minutes("distill"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
        device=RUNTIME.device,
        precision=RUNTIME.precision,
        batch=lambda wildcards: plan.distillation(wildcards.teacher).batch,
        engine=lambda wildcards: plan.distillation(wildcards.teacher).engine,
    params:
        settings=lambda wildcards: plan.settings_distillation(wildcards.teacher),
        subwords=input_folder("subwords"),
    message:
        "Translating the training source with {wildcards.teacher}, shard {wildcards.shard} of {wildcards.shards}"
    shell:
        "python -m workflow_src.stages.distill --settings {params.settings:q} --log {log:q}"
        " --model {input.model:q} --subwords {params.subwords:q} --source {input.source:q}"
        " --shard {wildcards.shard} --shards {wildcards.shards} --output {output.shard:q}"
        " --device {resources.device} --precision {resources.precision} --threads {threads} --batch {resources.batch}"
        " --engine {resources.engine}"


rule merge_distilled:
    input:
        shards=lambda wildcards: plan.distilled_shards(wildcards.teacher),
        model=rules.distill.input.model,
        subwords=SUBWORDS,
        source=plan.corpus("train", "source"),
    output:
        text=plan.distilled_text("{teacher}"),
        scores=plan.distilled_scores("{teacher}"),
    log:
        f"{LOGS}/merge_distilled/{{teacher}}.log",
    benchmark:
        f"{BENCHMARKS}/merge_distilled/{{teacher}}.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("merge_distilled"),
        runtime=needs.minutes("merge_distilled"),
        slurm_partition=needs.partition(gpu=False),
    params:
        settings=lambda wildcards: plan.settings_distillation(wildcards.teacher),
        subwords=input_folder("subwords"),
    message:
        "Joining the shards that {wildcards.teacher} translated"
    shell:
        "python -m workflow_src.stages.merge_distilled --settings {params.settings:q} --log {log:q}"
        " --shards {input.shards:q} --model {input.model:q} --subwords {params.subwords:q} --source {input.source:q}"
        " --output-text {output.text:q} --output-scores {output.scores:q}"
