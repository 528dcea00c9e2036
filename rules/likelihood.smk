"""Autoregressive systems score the training pairs, in shards; the likely pairs are a training text of their own."""


rule score_pairs:
    input:
        model=lambda wildcards: plan.likelihood_weights(wildcards.system),
        subwords=SUBWORDS,
        pairs=plan.encoded("raw", "train") + ".json",
    output:
        shard=plan.likelihood_shard("{system}", "{shard}", "{shards}"),
        record=records_of([plan.likelihood_shard("{system}", "{shard}", "{shards}")]),
    log:
        f"{LOGS}/score_pairs/{{system}}/{{shard}}-of-{{shards}}.log",
    benchmark:
        f"{BENCHMARKS}/score_pairs/{{system}}/{{shard}}-of-{{shards}}.tsv"
    priority: priority_of_training
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("score_pairs"),
        runtime=needs.minutes("score_pairs"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
    params:
        **stage(
            "score_pairs",
            lambda plan, wildcards: "{}",
            model="input.model",
            subwords=folder_of("input.subwords"),
            pairs=prefix_of("input.pairs"),
            shard="wildcards.shard",
            shards="wildcards.shards",
            output="output.shard",
            batch=lambda job: plan.likelihood(job.wildcards.system).batch,
        ),
    message:
        "Scoring the training pairs with {wildcards.system}, shard {wildcards.shard} of {wildcards.shards}"
    shell:
        COMMAND


rule keep_likely:
    input:
        unpack(backward_scores),
        shards=lambda wildcards: plan.likelihood_shards(wildcards.system),
        records=lambda wildcards: records_of(plan.likelihood_shards(wildcards.system)),
        model=rules.score_pairs.input.model,
        subwords=SUBWORDS,
        pairs=rules.score_pairs.input.pairs,
    output:
        summary=plan.encoded(f"{LIKELY}-by-{{system}}", "train") + ".json",
        arrays=multiext(plan.encoded(f"{LIKELY}-by-{{system}}", "train"), *ARRAYS),
    log:
        f"{LOGS}/keep_likely/{{system}}.log",
    benchmark:
        f"{BENCHMARKS}/keep_likely/{{system}}.tsv"
    priority: priority_of_training
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("keep_likely"),
        runtime=needs.minutes("keep_likely"),
        slurm_partition=needs.partition(gpu=False),
    params:
        **stage(
            "keep_likely",
            lambda plan, wildcards: plan.settings_likelihood(wildcards.system),
            system="wildcards.system",
            shards="input.shards",
            backward_model=input_if_any("backward_model"),
            backward_shards=input_if_any("backward_shards"),
            model="input.model",
            subwords=folder_of("input.subwords"),
            pairs=prefix_of("input.pairs"),
            output_prefix=prefix_of("output.summary"),
        ),
    message:
        "Keeping the training pairs that {wildcards.system} finds likely"
    shell:
        COMMAND
