"""Raw text -> raw text whose train has passed the filters of `recipe.clean`. Without filters it does not run."""


use rule cpu as clean with:
    input:
        texts=rules.download.output.texts,
        scores=rules.download.output.scores,
        summary=rules.download.output.summary,
    output:
        texts=plan.raw_texts(plan.cleaned),
        summary=FILES.clean_summary,
    log:
        f"{LOGS}/clean.log",
    benchmark:
        f"{BENCHMARKS}/clean.tsv"
    threads: needs.corpus_threads("clean")
    params:
        **stage(
            "clean",
            lambda plan, wildcards: plan.settings_clean(),
            raw_folder=folder_of("input.summary"),
            output_folder=folder_of("output.summary"),
        ),
    message:
        "Cleaning the training text"
