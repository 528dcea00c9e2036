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
        f"{LOGS}/choose_settings/{{system}}/seed-{{seed}}/{{search}}.log",
    benchmark:
        f"{BENCHMARKS}/choose_settings/{{system}}/seed-{{seed}}/{{search}}.tsv"
    priority: AWAITED
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("choose_settings"),
        runtime=needs.minutes("choose_settings"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
    params:
        **stage(
            "choose_settings",
            lambda plan, wildcards: plan.settings_choose(plan.decode(wildcards.system, wildcards.search)),
            bundle=folder_of("input.bundle"),
            systems=systems_of_roles,
            source="input.source",
            reference="input.reference",
            output="output.chosen",
            batch=batch_of_decode,
        ),
    message:
        "Choosing settings of {wildcards.search} for {wildcards.system}, seed {wildcards.seed}, on dev"
    shell:
        COMMAND


rule decode_shard:
    input:
        unpack(decode_inputs),
        bundle=decoding_bundle,
        source=plan.corpus("{split}", "source"),
    output:
        shard=plan.translation_shard(ANY_DECODE, "{seed}", "{split}", "{shard}", "{shards}"),
        record=records_of([plan.translation_shard(ANY_DECODE, "{seed}", "{split}", "{shard}", "{shards}")]),
    log:
        f"{LOGS}/decode_shard/{{system}}/seed-{{seed}}/{{search}}/{{split}}-{{shard}}-of-{{shards}}.log",
    benchmark:
        f"{BENCHMARKS}/decode_shard/{{system}}/seed-{{seed}}/{{search}}/{{split}}-{{shard}}-of-{{shards}}.tsv"
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("decode_shard"),
        runtime=needs.minutes("decode_shard"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
    params:
        **stage(
            "decode",
            lambda plan, wildcards: plan.settings_decode(plan.decode(wildcards.system, wildcards.search)),
            bundle=folder_of("input.bundle"),
            systems=systems_of_roles,
            chosen=input_if_any("chosen"),
            source="input.source",
            shard="wildcards.shard",
            shards="wildcards.shards",
            output="output.shard",
            batch=batch_of_decode,
        ),
    message:
        "Translating {wildcards.split} with {wildcards.system}, seed {wildcards.seed}: {wildcards.search},"
        " shard {wildcards.shard} of {wildcards.shards}"
    shell:
        COMMAND


rule decode:
    input:
        unpack(decode_inputs),
        bundle=decoding_bundle,
        source=plan.corpus("{split}", "source"),
        shards=lambda wildcards: plan.translation_shards(
            plan.decode(wildcards.system, wildcards.search), wildcards.seed, wildcards.split
        ),
        records=lambda wildcards: records_of(
            plan.translation_shards(plan.decode(wildcards.system, wildcards.search), wildcards.seed, wildcards.split)
        ),
    output:
        text=plan.translation(ANY_DECODE, "{seed}", "{split}"),
        details=plan.translation_details(ANY_DECODE, "{seed}", "{split}"),
    log:
        f"{LOGS}/decode/{{system}}/seed-{{seed}}/{{search}}/{{split}}.log",
    benchmark:
        f"{BENCHMARKS}/decode/{{system}}/seed-{{seed}}/{{search}}/{{split}}.tsv"
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("decode"),
        runtime=needs.minutes("decode"),
        # Where there are shards they are only joined, which needs no GPU; else --join is empty.
        slurm_partition=lambda wildcards, input: needs.partition(gpu=not input.shards),
        gpu=lambda wildcards, input: 0 if input.shards else GPUS,
    params:
        **stage(
            "decode",
            lambda plan, wildcards: plan.settings_decode(plan.decode(wildcards.system, wildcards.search)),
            bundle=folder_of("input.bundle"),
            systems=systems_of_roles,
            chosen=input_if_any("chosen"),
            source="input.source",
            join="input.shards",
            output="output.text",
            batch=batch_of_decode,
        ),
    message:
        "Translating {wildcards.split} with {wildcards.system}, seed {wildcards.seed}: {wildcards.search}"
    shell:
        COMMAND
