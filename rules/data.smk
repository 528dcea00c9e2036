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
        mirrors=shlex.join(plan.config.mirrors),
        allow_unpinned=str(plan.config.allow_unpinned),
        attempts=RUNTIME.download_attempts,
        wait=str(RUNTIME.download_wait),
        timeout=str(RUNTIME.download_timeout),
    params:
        settings=plan.settings_download(),
        # The user's text counts by its contents and is no input: its date may come from another machine's clock.
        own=lambda wildcards: contents(plan.own_files()),
        languages=LANGUAGES,
        folder=output_folder("summary"),
    message:
        f"Fetching dataset {plan.loaded.dataset.name}"
    shell:
        "python -m workflow_src.stages.download --settings {params.settings:q} --log {log:q}"
        " --mirrors {resources.mirrors} --allow-unpinned {resources.allow_unpinned}"
        " --attempts {resources.attempts} --first-wait {resources.wait} --timeout {resources.timeout}"
        " --languages {params.languages} --output-folder {params.folder:q}"


rule download_monolingual:
    output:
        text=plan.raw(MONOLINGUAL, plan.recipe.source),
        summary=plan.raw(MONOLINGUAL, "json"),
    log:
        f"{LOGS}/download_monolingual.log",
    benchmark:
        f"{BENCHMARKS}/download_monolingual.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("download_monolingual"),
        runtime=needs.minutes("download_monolingual"),
        mirrors=shlex.join(plan.config.mirrors),
        allow_unpinned=str(plan.config.allow_unpinned),
        attempts=RUNTIME.download_attempts,
        wait=str(RUNTIME.download_wait),
        timeout=str(RUNTIME.download_timeout),
    params:
        settings=plan.settings_download_monolingual(),
        own=lambda wildcards: contents(plan.own_monolingual.values()),
        folder=output_folder("summary"),
    message:
        f"Fetching text in {plan.recipe.source}"
    shell:
        "python -m workflow_src.stages.download_monolingual --settings {params.settings:q} --log {log:q}"
        " --mirrors {resources.mirrors} --allow-unpinned {resources.allow_unpinned}"
        " --attempts {resources.attempts} --first-wait {resources.wait} --timeout {resources.timeout}"
        " --output-folder {params.folder:q}"


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
    conda:
        "../envs/cpu.yaml"
    threads: needs.corpus_threads("normalise_monolingual")
    resources:
        mem_mb=needs.memory("normalise_monolingual"),
        runtime=needs.minutes("normalise_monolingual"),
        slurm_partition=needs.partition(gpu=False),
    params:
        settings=plan.settings_normalise_monolingual(),
        raw=input_folder("summary"),
        folder=output_folder("summary"),
    message:
        f"Cleaning and normalising text in {plan.recipe.source}"
    shell:
        "python -m workflow_src.stages.normalise_monolingual --settings {params.settings:q} --log {log:q} --threads {threads}"
        " --raw-folder {params.raw:q} --held-out {input.held_out:q} --output-folder {params.folder:q}"


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
        settings=plan.settings_normalise(),
        raw=input_folder("summary"),
        folder=output_folder("summary"),
    message:
        "Normalising, filtering and splitting the corpus"
    shell:
        "python -m workflow_src.stages.normalise --settings {params.settings:q} --log {log:q} --threads {threads}"
        " --raw-folder {params.raw:q} --output-folder {params.folder:q}"


rule learn_subwords:
    input:
        **{"subwords-from": path for path in plan.own_subwords},
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
        settings=plan.settings_subwords(),
        others=option("subwords-from"),
        folder=output_folder("summary"),
    message:
        "Learning subwords on the training text"
    shell:
        "python -m workflow_src.stages.learn_subwords --settings {params.settings:q} --log {log:q}"
        " --source {input.source:q} --target {input.target:q} {params.others} --threads {threads}"
        " --output-folder {params.folder:q}"


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
        f"{LOGS}/encode/{{text}}-{{split}}.log",
    benchmark:
        f"{BENCHMARKS}/encode/{{text}}-{{split}}.tsv"
    wildcard_constraints:
        # keep_likely writes these texts.
        text=f"(?!{LIKELY}-by-)[^/]+",
    priority: AWAITED
    conda:
        "../envs/cpu.yaml"
    threads: lambda wildcards: needs.corpus_threads("encode", wildcards)
    resources:
        mem_mb=needs.memory("encode"),
        runtime=needs.minutes("encode"),
        slurm_partition=needs.partition(gpu=False),
        # No result depends on it: longer sentences end the job.
        longest=plan.longest,
    params:
        settings=lambda wildcards: plan.settings_encode(wildcards.text),
        subwords=input_folder("subwords"),
        measured=option("measured"),
        prefix=lambda wildcards, output: os.path.splitext(output.summary)[0],
    message:
        "Encoding {wildcards.split} with {wildcards.text} targets"
    shell:
        "python -m workflow_src.stages.encode --settings {params.settings:q} --log {log:q} --threads {threads}"
        " --subwords {params.subwords:q} --source {input.source:q} --target {input.target:q}"
        " --corpus-summary {input.corpus:q} --longest {resources.longest} {params.measured}"
        " --split {wildcards.split} --output-prefix {params.prefix:q}"
