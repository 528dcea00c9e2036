"""Every declared analysis: one body, and a rule for each."""

for analysis in plan.analyses.values():

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
            limits=" ".join(f"{name}={value}" for name, value in analysis.limits.items()),
        params:
            settings=analysis.settings,
            bundles=analysis_bundles,
        message:
            analysis.message
        shell:
            "python -m workflow_src.stages.measure_analysis --analysis {resources.analysis} --settings {params.settings:q}"
            " --log {log:q} --bundles {params.bundles:q} --source {input.source:q} --target {input.target:q}"
            " --reference {input.reference:q} --output {output.analysis:q}"
            " --device {resources.device} --precision {resources.precision} --limits {resources.limits}"
