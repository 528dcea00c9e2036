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
        **stage("clean", Plan.settings_clean, **SUMMARIES),
    message:
        "Cleaning the training text"


use rule clean as clean_monolingual with:
    input:
        texts=rules.download_monolingual.output.texts,
        summary=rules.download_monolingual.output.summary,
    output:
        texts=plan.cleaned(MONOLINGUAL, plan.recipe.source),
        summary=FILES.clean_monolingual_summary,
    log:
        f"{LOGS}/clean_monolingual.log",
    benchmark:
        f"{BENCHMARKS}/clean_monolingual.tsv"
    priority: priority_of_training
    threads: needs.corpus_threads("clean_monolingual")
    params:
        **stage("clean", Plan.settings_clean_monolingual, **SUMMARIES),
    message:
        f"Cleaning text in {plan.recipe.source}"
