"""Raw text -> raw text whose train has passed the filters of `recipe.clean`. Without filters it does not run."""


rule clean:
    input:
        texts=rules.download.output.texts,
        scores=rules.download.output.scores,
        summary=rules.download.output.summary,
    output:
        texts=plan.raw_texts(plan.cleaned),
        summary=plan.cleaned("raw", "json"),
    log:
        f"{LOGS}/clean.log",
    benchmark:
        f"{BENCHMARKS}/clean.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: needs.corpus_threads("clean")
    resources:
        mem_mb=needs.memory("clean"),
        runtime=needs.minutes("clean"),
        slurm_partition=needs.partition(gpu=False),
    params:
        **stage(
            "clean",
            lambda plan, wildcards: plan.settings_clean(),
            raw_folder=folder_of("input.summary"),
            output_folder=folder_of("output.summary"),
        ),
    message:
        "Cleaning the training text"
    shell:
        COMMAND
