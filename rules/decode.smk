"""Bundles -> settings chosen on dev -> translations of dev and test."""


rule choose_settings:
    input:
        unpack(search_inputs),
        bundle=rules.export_bundle.output.bundle,
        source=plan.corpus("dev", "source"),
        reference=plan.references("dev"),
    output:
        chosen=plan.chosen(ANY_DECODE, "{seed}"),
    log:
        f"{LOGS}/choose_settings/{{system}}-{{seed}}-{{search}}.log",
    benchmark:
        f"{BENCHMARKS}/choose_settings/{{system}}-{{seed}}-{{search}}.tsv"
    priority: AWAITED
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("choose_settings"),
        runtime=needs.minutes("choose_settings"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
        device=RUNTIME.device,
        precision=RUNTIME.precision,
        batch=lambda wildcards: plan.decode(wildcards.system, wildcards.search).batch,
    params:
        settings=lambda wildcards: plan.settings_choose(plan.decode(wildcards.system, wildcards.search)),
        bundle=input_folder("bundle"),
        systems=option_systems,
    message:
        "Choosing settings of {wildcards.search} for {wildcards.system}, seed {wildcards.seed}, on dev"
    shell:
        "python -m workflow_src.stages.choose_settings --settings {params.settings:q} --log {log:q}"
        " --bundle {params.bundle:q} {params.systems} --source {input.source:q} --reference {input.reference:q}"
        " --output {output.chosen:q} --device {resources.device} --precision {resources.precision}"
        " --threads {threads} --batch {resources.batch}"


rule decode_shard:
    input:
        unpack(decode_inputs),
        bundle=decoding_bundle,
        source=plan.corpus("{split}", "source"),
    output:
        shard=plan.translation_shard(ANY_DECODE, "{seed}", "{split}", "{shard}", "{shards}"),
    log:
        f"{LOGS}/decode_shard/{{system}}-{{seed}}-{{search}}-{{split}}-{{shard}}-of-{{shards}}.log",
    benchmark:
        f"{BENCHMARKS}/decode_shard/{{system}}-{{seed}}-{{search}}-{{split}}-{{shard}}-of-{{shards}}.tsv"
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("decode_shard"),
        runtime=needs.minutes("decode_shard"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
        device=RUNTIME.device,
        precision=RUNTIME.precision,
        batch=lambda wildcards: plan.decode(wildcards.system, wildcards.search).batch,
    params:
        settings=lambda wildcards: plan.settings_decode(plan.decode(wildcards.system, wildcards.search)),
        bundle=input_folder("bundle"),
        systems=option_systems,
        chosen=option("chosen"),
    message:
        "Translating {wildcards.split} with {wildcards.system}, seed {wildcards.seed}: {wildcards.search},"
        " shard {wildcards.shard} of {wildcards.shards}"
    shell:
        "python -m workflow_src.stages.decode --settings {params.settings:q} --log {log:q}"
        " --bundle {params.bundle:q} {params.systems} {params.chosen} --source {input.source:q}"
        " --shard {wildcards.shard} --shards {wildcards.shards} --output {output.shard:q}"
        " --device {resources.device} --precision {resources.precision} --threads {threads} --batch {resources.batch}"


rule decode:
    input:
        unpack(decode_inputs),
        bundle=decoding_bundle,
        source=plan.corpus("{split}", "source"),
        shards=lambda wildcards: plan.translation_shards(
            plan.decode(wildcards.system, wildcards.search), wildcards.seed, wildcards.split
        ),
    output:
        text=plan.translation(ANY_DECODE, "{seed}", "{split}"),
        details=plan.translation_details(ANY_DECODE, "{seed}", "{split}"),
    log:
        f"{LOGS}/decode/{{system}}-{{seed}}-{{search}}-{{split}}.log",
    benchmark:
        f"{BENCHMARKS}/decode/{{system}}-{{seed}}-{{search}}-{{split}}.tsv"
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("decode"),
        runtime=needs.minutes("decode"),
        # Where there are shards they are only joined, which needs no GPU; else --join is empty.
        slurm_partition=lambda wildcards, input: needs.partition(gpu=not input.shards),
        gpu=lambda wildcards, input: 0 if input.shards else GPUS,
        device=lambda wildcards, input: "cpu" if input.shards else RUNTIME.device,
        precision=RUNTIME.precision,
        batch=lambda wildcards: plan.decode(wildcards.system, wildcards.search).batch,
    params:
        settings=lambda wildcards: plan.settings_decode(plan.decode(wildcards.system, wildcards.search)),
        bundle=input_folder("bundle"),
        systems=option_systems,
        chosen=option("chosen"),
    message:
        "Translating {wildcards.split} with {wildcards.system}, seed {wildcards.seed}: {wildcards.search}"
    shell:
        "python -m workflow_src.stages.decode --settings {params.settings:q} --log {log:q}"
        " --bundle {params.bundle:q} {params.systems} {params.chosen} --source {input.source:q}"
        " --join {input.shards:q} --output {output.text:q}"
        " --device {resources.device} --precision {resources.precision} --threads {threads} --batch {resources.batch}"
