"""Every declared analysis: one body, and a rule for each."""

for key, analysis in plan.analyses.items():

    rule:
        name:
            analysis.rule
        input:
            **analysis_inputs(analysis),
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
            mem_mb=needs.memory(analysis.rule),
            runtime=needs.minutes(analysis.rule),
            slurm_partition=needs.partition(gpu=True),
            gpu=GPUS,
        params:
            **stage(
                "measure_analysis",
                lambda plan, wildcards, key=key: plan.settings_of_analysis(key),
                bundles=analysis_bundles,
                source="input.source",
                target="input.target",
                reference="input.reference",
                output="output.analysis",
                analysis=lambda job, name=analysis.name: name,
                limits=lambda job, limits=analysis.limits: dict(limits),
            ),
        message:
            analysis.message
        shell:
            COMMAND
