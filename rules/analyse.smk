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
            device=RUNTIME.device,
            precision=RUNTIME.precision,
            analysis=analysis.name,
        params:
            **stage(
                "measure_analysis",
                lambda plan, wildcards, key=key: plan.settings_of_analysis(key),
                resources=["analysis", "device", "precision"],
                bundles=analysis_bundles,
                source="input.source",
                target="input.target",
                reference="input.reference",
                output="output.analysis",
                limits=lambda job, limits=analysis.limits: [f"{name}={value}" for name, value in limits.items()],
            ),
        message:
            analysis.message
        shell:
            COMMAND
