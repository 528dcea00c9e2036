"""Bundles -> settings chosen on dev -> translations of dev and test."""


use rule gpu as choose_settings with:
    input:
        unpack(plan.search_inputs),
        bundle=rules.export_bundle.output.bundle,
        source=plan.corpus("dev", "source"),
        reference=plan.references("dev"),
    output:
        chosen=FILES.chosen,
    log:
        f"{LOGS}/choose_settings/{{system}}/seed-{{seed}}/{{search}}.log",
    benchmark:
        f"{BENCHMARKS}/choose_settings/{{system}}/seed-{{seed}}/{{search}}.tsv"
    priority: AWAITED
    params:
        **stage("choose_settings", Plan.settings_choose, ["reference"], **params.decoding, output="output.chosen"),
    message:
        "Choosing settings of {wildcards.search} for {wildcards.system}, seed {wildcards.seed}, on dev"


use rule gpu as decode_shard with:
    input:
        unpack(plan.decode_inputs),
        source=FILES.source,
    output:
        shard=FILES.translation_shard,
        record=records_of([FILES.translation_shard]),
    log:
        f"{LOGS}/decode_shard/{{system}}/seed-{{seed}}/{{search}}/{{split}}-{{shard}}-of-{{shards}}.log",
    benchmark:
        f"{BENCHMARKS}/decode_shard/{{system}}/seed-{{seed}}/{{search}}/{{split}}-{{shard}}-of-{{shards}}.tsv"
    params:
        **stage("decode", Plan.settings_decode, ["chosen", "shard", "shards"], **params.decoding, output="output.shard"),
    message:
        "Translating {wildcards.split} with {wildcards.system}, seed {wildcards.seed}: {wildcards.search},"
        " shard {wildcards.shard} of {wildcards.shards}"


use rule gpu as decode with:
    input:
        unpack(plan.decode_inputs),
        source=FILES.source,
        shards=plan.joined_shards,
        records=plan.joined_records,
    output:
        text=FILES.translation,
        details=FILES.translation_details,
        record=records_of([FILES.translation]),
    log:
        f"{LOGS}/decode/{{system}}/seed-{{seed}}/{{search}}/{{split}}.log",
    benchmark:
        f"{BENCHMARKS}/decode/{{system}}/seed-{{seed}}/{{search}}/{{split}}.tsv"
    resources:
        **DECODE,
    params:
        **stage(
            "decode", Plan.settings_decode, ["chosen"], **params.decoding, join="input.shards", output="output.text"
        ),
    message:
        "Translating {wildcards.split} with {wildcards.system}, seed {wildcards.seed}: {wildcards.search}"
