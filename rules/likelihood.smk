"""Autoregressive systems score the training pairs, in shards; the likely pairs are a training text of their own."""


rule score_pairs:
    input:
        model=lambda wildcards: plan.likelihood_weights(wildcards.system),
        subwords=SUBWORDS,
        pairs=plan.encoded("raw", "train") + ".json",
    output:
        shard=plan.likelihood_shard("{system}", "{shard}", "{shards}"),
    log:
        f"{LOGS}/score_pairs/{{system}}-{{shard}}-of-{{shards}}.log",
    benchmark:
        f"{BENCHMARKS}/score_pairs/{{system}}-{{shard}}-of-{{shards}}.tsv"
    priority: AWAITED
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("score_pairs"),
        runtime=needs.minutes("score_pairs"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
        device=RUNTIME.device,
        precision=RUNTIME.precision,
        batch=lambda wildcards: plan.likelihood(wildcards.system).batch,
    params:
        settings="{}",
        subwords=input_folder("subwords"),
        pairs=input_prefix("pairs"),
    message:
        "Scoring the training pairs with {wildcards.system}, shard {wildcards.shard} of {wildcards.shards}"
    shell:
        "python -m workflow_src.stages.score_pairs --settings {params.settings:q} --log {log:q}"
        " --model {input.model:q} --subwords {params.subwords:q} --pairs {params.pairs:q}"
        " --shard {wildcards.shard} --shards {wildcards.shards} --output {output.shard:q}"
        " --device {resources.device} --precision {resources.precision} --threads {threads} --batch {resources.batch}"


rule keep_likely:
    input:
        unpack(backward_scores),
        shards=lambda wildcards: plan.likelihood_shards(wildcards.system),
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
    priority: AWAITED
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("keep_likely"),
        runtime=needs.minutes("keep_likely"),
        slurm_partition=needs.partition(gpu=False),
    params:
        settings=lambda wildcards: plan.settings_likelihood(wildcards.system),
        subwords=input_folder("subwords"),
        pairs=input_prefix("pairs"),
        backward=options_backward,
        prefix=lambda wildcards, output: os.path.splitext(output.summary)[0],
    message:
        "Keeping the training pairs that {wildcards.system} finds likely"
    shell:
        "python -m workflow_src.stages.keep_likely --settings {params.settings:q} --log {log:q}"
        " --shards {input.shards:q} {params.backward} --model {input.model:q} --subwords {params.subwords:q} --pairs {params.pairs:q}"
        " --output-prefix {params.prefix:q}"
