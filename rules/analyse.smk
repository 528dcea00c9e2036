"""The analyses: marginals, tokens, lengths, samples, latent spaces and paths, components, reordering, convergence, energies."""

LIMITS = {
    analysis.rule: "".join(f" --{name} {{resources.{name}}}" for name in analysis.limits)
    for analysis in plan.analyses.values()
}

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
            **analysis.limits,
            mem_mb=needs.memory(analysis.rule),
            runtime=needs.minutes(analysis.rule),
            slurm_partition=needs.partition(gpu=True),
            gpu=GPUS,
            device=RUNTIME.device,
            precision=RUNTIME.precision,
        params:
            settings=analysis.settings,
            bundles=analysis_bundles,
        message:
            analysis.message
        shell:
            f"python -m workflow_src.stages.{rule or analysis.rule} --settings {{params.settings:q}} --log {{log:q}}"
            " --bundles {params.bundles:q} --source {input.source:q} --target {input.target:q}"
            " --reference {input.reference:q} --output {output.analysis:q}"
            f" --device {{resources.device}} --precision {{resources.precision}}{LIMITS[rule or analysis.rule]}"
