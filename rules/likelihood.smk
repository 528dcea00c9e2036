"""Autoregressive systems score the training pairs, in shards; the likely pairs are a training text of their own."""


use rule gpu as score_pairs with:
    input:
        model=lambda wildcards: plan.likelihood_weights(wildcards.system),
        subwords=rules.learn_subwords.output.summary,
        pairs=plan.encoded("raw", "train") + ".json",
    output:
        shard=FILES.likelihood_shard,
        record=records_of([FILES.likelihood_shard]),
    log:
        f"{LOGS}/score_pairs/{{system}}/{{shard}}-of-{{shards}}.log",
    benchmark:
        f"{BENCHMARKS}/score_pairs/{{system}}/{{shard}}-of-{{shards}}.tsv"
    priority: priority_of_training
    params:
        **stage(
            "score_pairs",
            Plan.settings_scoring,
            ["model", "shard", "shards"],
            of=["system"],
            subwords=folder_of("input.subwords"),
            pairs=prefix_of("input.pairs"),
            output="output.shard",
        ),
    message:
        "Scoring the training pairs with {wildcards.system}, shard {wildcards.shard} of {wildcards.shards}"


use rule cpu as keep_likely with:
    input:
        unpack(plan.scored_pairs),
        model=rules.score_pairs.input.model,
        subwords=rules.learn_subwords.output.summary,
        pairs=rules.score_pairs.input.pairs,
    output:
        summary=FILES.likely,
        arrays=multiext(FILES.likely.removesuffix(".json"), *ARRAYS),
    log:
        f"{LOGS}/keep_likely/{{system}}.log",
    benchmark:
        f"{BENCHMARKS}/keep_likely/{{system}}.tsv"
    priority: priority_of_training
    params:
        **params.keeping,
    message:
        "Keeping the training pairs that {wildcards.system} finds likely"
