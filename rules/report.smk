"""Everything measured -> one page, its tables and its figures."""


use rule cpu as report with:
    input:
        **plan.report_inputs,
    output:
        page=shown(FILES.report, "page", "Report", "the whole report"),
        record=f"{plan.report}/provenance.json",
        text=f"{plan.report}/results.md",
        rows=f"{plan.report}/rows.csv",
        table=shown(f"{plan.report}/figures.csv", "table", "Report", "all figures"),
        figures=shown(directory(f"{plan.report}/figures"), "figure", "Figures", "{figure}", patterns=["{figure}.svg"]),
    log:
        f"{EXPERIMENT_LOGS}/report.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/report.tsv"
    params:
        **stage(
            "report",
            Plan.settings_report,
            ["significance", "speed", "traces", "corpus", "monolingual", "encoded", "analyses", "bundles"],
            output_folder=folder_of("output.page"),
        ),
    message:
        "Writing the report"
