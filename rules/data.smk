"""Raw files -> raw text -> normalised text of each split -> subwords -> arrays of subword ids."""


localrules:
    download,
    download_monolingual,


rule download:
    output:
        texts=plan.raw_texts(plan.raw),
        scores=[plan.scores] if plan.loaded.needs_scores else [],
        summary=plan.raw("raw", "json"),
    log:
        f"{LOGS}/download.log",
    benchmark:
        f"{BENCHMARKS}/download.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("download"),
        runtime=needs.minutes("download"),
    params:
        **stage(
            "download",
            lambda plan, wildcards: plan.settings_download(),
            languages=lambda job: LANGUAGES,
            output_folder=folder_of("output.summary"),
        ),
        # The user's text counts by its contents and is no input: its date may come from another machine's clock.
        own=lambda wildcards: contents(plan.own_files()),
    message:
        f"Fetching dataset {plan.loaded.dataset.name}"
    shell:
        COMMAND


rule download_monolingual:
    output:
        text=plan.raw(MONOLINGUAL, plan.recipe.source),
        summary=plan.raw(MONOLINGUAL, "json"),
    log:
        f"{LOGS}/download_monolingual.log",
    benchmark:
        f"{BENCHMARKS}/download_monolingual.tsv"
    priority: priority_of_training
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("download_monolingual"),
        runtime=needs.minutes("download_monolingual"),
    params:
        **stage(
            "download_monolingual",
            lambda plan, wildcards: plan.settings_download_monolingual(),
            output_folder=folder_of("output.summary"),
        ),
        own=lambda wildcards: contents(plan.own_monolingual.values()),
    message:
        f"Fetching text in {plan.recipe.source}"
    shell:
        COMMAND


rule normalise_monolingual:
    input:
        text=rules.download_monolingual.output.text,
        summary=rules.download_monolingual.output.summary,
        held_out=[plan.corpus(split, "source") for split in plan.loaded.held_out],
    output:
        text=plan.corpus(MONOLINGUAL, "source"),
        summary=plan.monolingual_summary,
    log:
        f"{LOGS}/normalise_monolingual.log",
    benchmark:
        f"{BENCHMARKS}/normalise_monolingual.tsv"
    priority: priority_of_training
    conda:
        "../envs/cpu.yaml"
    threads: needs.corpus_threads("normalise_monolingual")
    resources:
        mem_mb=needs.memory("normalise_monolingual"),
        runtime=needs.minutes("normalise_monolingual"),
        slurm_partition=needs.partition(gpu=False),
    params:
        **stage(
            "normalise_monolingual",
            lambda plan, wildcards: plan.settings_normalise_monolingual(),
            raw_folder=folder_of("input.summary"),
            held_out="input.held_out",
            output_folder=folder_of("output.summary"),
        ),
    message:
        f"Cleaning and normalising text in {plan.recipe.source}"
    shell:
        COMMAND


rule normalise:
    input:
        texts=plan.raw_texts(plan.to_normalise),
        summary=plan.to_normalise("raw", "json"),
    output:
        texts=[plan.corpus(split, code) for split in ["train", *plan.loaded.held_out] for code in LANGUAGES],
        references=[file for split in plan.loaded.held_out for file in plan.references(split)],
        summary=plan.corpus_summary,
    log:
        f"{LOGS}/normalise.log",
    benchmark:
        f"{BENCHMARKS}/normalise.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: needs.corpus_threads("normalise")
    resources:
        mem_mb=needs.memory("normalise"),
        runtime=needs.minutes("normalise"),
        slurm_partition=needs.partition(gpu=False),
    params:
        **stage(
            "normalise",
            lambda plan, wildcards: plan.settings_normalise(),
            raw_folder=folder_of("input.summary"),
            output_folder=folder_of("output.summary"),
        ),
    message:
        "Normalising, filtering and splitting the corpus"
    shell:
        COMMAND


rule learn_subwords:
    input:
        **{"subwords_from": path for path in plan.own_subwords},
        source=plan.corpus("train", "source"),
        target=plan.corpus("train", "target"),
    output:
        summary=SUBWORDS,
    log:
        f"{LOGS}/learn_subwords.log",
    benchmark:
        f"{BENCHMARKS}/learn_subwords.tsv"
    conda:
        "../envs/cpu.yaml"
    # As many as SentencePiece starts.
    threads: 4
    resources:
        mem_mb=needs.memory("learn_subwords"),
        runtime=needs.minutes("learn_subwords"),
        slurm_partition=needs.partition(gpu=False),
    params:
        **stage(
            "learn_subwords",
            lambda plan, wildcards: plan.settings_subwords(),
            # Texts with other placeholders are normalised anew.
            placeholders=lambda job: plan.recipe.placeholder_kinds,
            source="input.source",
            target="input.target",
            subwords_from=input_if_any("subwords_from"),
            output_folder=folder_of("output.summary"),
        ),
    message:
        "Learning subwords on the training text"
    shell:
        COMMAND


rule encode:
    input:
        unpack(measured_raw),
        subwords=rules.learn_subwords.output.summary,
        corpus=plan.corpus_summary,
        source=lambda wildcards: (
            plan.source_text(wildcards.text) if wildcards.split == "train" else plan.corpus(wildcards.split, "source")
        ),
        target=lambda wildcards: (
            plan.target_text(wildcards.text) if wildcards.split == "train" else plan.corpus(wildcards.split, "target")
        ),
    output:
        summary=f"{ENCODED}.json",
        arrays=multiext(ENCODED, *ARRAYS),
    log:
        f"{LOGS}/encode/{{text}}/{{split}}.log",
    benchmark:
        f"{BENCHMARKS}/encode/{{text}}/{{split}}.tsv"
    wildcard_constraints:
        # keep_likely writes these texts.
        text=f"(?!{LIKELY}-by-)[^/]+",
    priority: priority_of_training
    conda:
        "../envs/cpu.yaml"
    threads: lambda wildcards: needs.corpus_threads("encode", wildcards)
    resources:
        mem_mb=needs.memory("encode"),
        runtime=needs.minutes("encode"),
        slurm_partition=needs.partition(gpu=False),
    params:
        **stage(
            "encode",
            lambda plan, wildcards: plan.settings_encode(wildcards.text),
            languages=lambda job: LANGUAGES,
            subwords=folder_of("input.subwords"),
            source="input.source",
            target="input.target",
            corpus_summary="input.corpus",
            measured=input_if_any("measured"),
            # No result depends on it: longer sentences end the job.
            longest=lambda job: plan.longest,
            split="wildcards.split",
            output_prefix=prefix_of("output.summary"),
        ),
    message:
        "Encoding {wildcards.split} with {wildcards.text} targets"
    shell:
        COMMAND
