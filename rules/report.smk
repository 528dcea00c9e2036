"""Everything measured -> one page, its tables and its figures."""


rule report:
    input:
        quality=[plan.quality(*row) for row in plan.rows],
        training=[f"{plan.system_folder(*trained)}/training.jsonl" for trained in TRAINED],
        configs=[f"{plan.system_folder(*trained)}/config.json" for trained in TRAINED],
        chosen=[plan.chosen(*row) for row in plan.tuned],
        significance=[plan.significance(name) for name in plan.compared_sets],
        speed=plan.speed,
        traces=plan.traces,
        analyses=[analysis.path for analysis in plan.analyses.values() if analysis.enabled],
        corpus=plan.corpus_summary,
        monolingual=[plan.monolingual_summary] if plan.reads_monolingual else [],
        encoded=[f"{plan.encoded(text, 'train')}.json" for text in plan.texts],
        checked=CHECKED,
        bundles=FINISHED,
        source=plan.corpus(plan.shown_split, "source"),
        reference=plan.reference(plan.shown_split),
        translations=plan.shown_translations,
    output:
        page=report(
            REPORT,
            caption="captions/page.rst",
            category="Report",
            labels={"shows": "the whole report"},
        ),
        rows=f"{plan.report}/results.json",
        text=f"{plan.report}/results.md",
        table=report(
            f"{plan.report}/table.csv",
            caption="captions/table.rst",
            category="Report",
            labels={"shows": "the main table"},
        ),
        figures=report(
            directory(f"{plan.report}/figures"),
            patterns=["{figure}.svg"],
            caption="captions/figure.rst",
            category="Figures",
            labels={"shows": "{figure}"},
        ),
    log:
        f"{EXPERIMENT_LOGS}/report.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/report.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("report"),
        runtime=needs.minutes("report"),
        slurm_partition=needs.partition(gpu=False),
    params:
        **stage(
            "report",
            lambda plan, wildcards: plan.settings_report(),
            significance="input.significance",
            speed="input.speed",
            traces="input.traces",
            corpus="input.corpus",
            monolingual="input.monolingual",
            encoded="input.encoded",
            analyses="input.analyses",
            bundles="input.bundles",
            output_folder=folder_of("output.page"),
        ),
    message:
        "Writing the report"
    shell:
        COMMAND
