"""Every declared analysis: one body, and a rule for each."""

for key, analysis in plan.analyses.items():

    rule:
        name:
            analysis.rule
        input:
            **plan.analysis_inputs(analysis),
        output:
            analysis=analysis.path,
        log:
            f"{EXPERIMENT_LOGS}/{analysis.rule}.log",
        benchmark:
            f"{EXPERIMENT_BENCHMARKS}/{analysis.rule}.tsv"
        conda:
            "../envs/gpu.yaml"
        threads: 1
        resources:
            **GPU,
        params:
            **params.analysis(key, analysis),
        message:
            analysis.message
        shell:
            COMMAND
