"""Everything measured -> one page, its tables and its figures."""


use rule cpu as report with:
    input:
        **plan.report_inputs,
    output:
        page=report(
            FILES.report,
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
    params:
        **stage(
            "report",
            lambda plan, wildcards: plan.settings_report(),
            ["significance", "speed", "traces", "corpus", "monolingual", "encoded", "analyses", "bundles"],
            output_folder=folder_of("output.page"),
        ),
    message:
        "Writing the report"
