"""Raw files -> raw text -> normalised text of each split -> subwords -> arrays of subword ids."""


localrules:
    download,
    download_monolingual,


# Stages that rewrite texts: the counts of those that they read, and of those that they write.
SUMMARIES = {"raw": "input.summary", "summary": "output.summary"}


use rule cpu as download with:
    output:
        texts=plan.raw_texts(plan.raw),
        scores=[FILES.raw_scores] if plan.loaded.needs_scores else [],
        summary=FILES.raw_summary,
    log:
        f"{LOGS}/download.log",
    benchmark:
        f"{BENCHMARKS}/download.tsv"
    params:
        **params.download,
        # The user's text counts by its contents and is no input: its date may come from another machine's clock, and
        # it may be moved away after it was read.
        own=lambda wildcards: contents(plan.own_files(), FILES.raw_summary),
    message:
        f"Fetching dataset {plan.loaded.dataset.name}"


use rule download as download_monolingual with:
    output:
        texts=plan.raw(MONOLINGUAL, plan.recipe.source),
        summary=FILES.raw_monolingual_summary,
    log:
        f"{LOGS}/download_monolingual.log",
    benchmark:
        f"{BENCHMARKS}/download_monolingual.tsv"
    priority: priority_of_training
    params:
        **params.download_monolingual,
        own=lambda wildcards: contents(plan.own_monolingual.values(), FILES.raw_monolingual_summary),
    message:
        f"Fetching text in {plan.recipe.source}"


use rule cpu as normalise with:
    input:
        texts=plan.raw_texts(plan.to_normalise),
        summary=FILES.clean_summary if plan.loaded.cleaning else FILES.raw_summary,
    output:
        texts=[plan.corpus(split, side) for split in ["train", *plan.loaded.held_out] for side in ["source", "target"]],
        references=[file for split in plan.loaded.held_out for file in plan.references(split)],
        summary=FILES.corpus_summary,
    log:
        f"{LOGS}/normalise.log",
    benchmark:
        f"{BENCHMARKS}/normalise.tsv"
    threads: needs.corpus_threads("normalise")
    params:
        **stage("normalise", Plan.settings_normalise, **SUMMARIES),
    message:
        "Normalising, filtering and splitting the corpus"


use rule normalise as normalise_monolingual with:
    input:
        texts=plan.to_normalise(MONOLINGUAL, plan.recipe.source),
        summary=(FILES.clean_monolingual_summary if plan.loaded.monolingual_cleaning else FILES.raw_monolingual_summary),
        held_out=[plan.corpus(split, "source") for split in plan.loaded.held_out],
    output:
        texts=plan.corpus(MONOLINGUAL, "source"),
        summary=FILES.monolingual_summary,
    log:
        f"{LOGS}/normalise_monolingual.log",
    benchmark:
        f"{BENCHMARKS}/normalise_monolingual.tsv"
    priority: priority_of_training
    threads: needs.corpus_threads("normalise_monolingual")
    params:
        **stage("normalise", Plan.settings_normalise_monolingual, ["held_out"], **SUMMARIES),
    message:
        f"Normalising text in {plan.recipe.source}"


use rule cpu as learn_subwords with:
    input:
        **{"subwords_from": path for path in plan.own_subwords},
        source=plan.corpus("train", "source"),
        target=plan.corpus("train", "target"),
    output:
        summary=FILES.subwords,
    log:
        f"{LOGS}/learn_subwords.log",
    benchmark:
        f"{BENCHMARKS}/learn_subwords.tsv"
    # As many as SentencePiece starts.
    threads: 4
    params:
        **stage(
            "learn_subwords",
            Plan.settings_subwords,
            ["source", "target", "subwords_from"],
            placeholders=lambda job: plan.recipe.placeholders,
            output_folder=folder_of("output.summary"),
        ),
    message:
        "Learning subwords on the training text"


use rule cpu as encode with:
    input:
        unpack(plan.encode_inputs),
        subwords=rules.learn_subwords.output.summary,
        corpus_summary=rules.normalise.output.summary,
    output:
        summary=FILES.encoded,
        arrays=multiext(FILES.encoded.removesuffix(".json"), *ARRAYS),
    log:
        f"{LOGS}/encode/{{text}}/{{split}}.log",
    benchmark:
        f"{BENCHMARKS}/encode/{{text}}/{{split}}.tsv"
    wildcard_constraints:
        text=NOT_LIKELY,
    priority: priority_of_training
    threads: lambda wildcards: needs.corpus_threads("encode", wildcards)
    params:
        **params.encode,
    message:
        "Encoding {wildcards.split} with {wildcards.text} targets"
