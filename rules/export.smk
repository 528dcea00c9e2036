"""Trained systems -> bundles, which hold all a translation needs -> folders of engines, and bundles for users."""


rule export_bundle:
    input:
        unpack(bundle_inputs),
    output:
        bundle=plan.bundle_file("{system}", "{seed}"),
    log:
        f"{LOGS}/export_bundle/{{system}}/seed-{{seed}}.log",
    benchmark:
        f"{BENCHMARKS}/export_bundle/{{system}}/seed-{{seed}}.tsv"
    wildcard_constraints:
        system=OWN_SYSTEMS,
    priority: AWAITED
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("export_bundle"),
        runtime=needs.minutes("export_bundle"),
        slurm_partition=needs.partition(gpu=False),
    params:
        **stage(
            "export_bundle",
            lambda plan, wildcards: plan.settings_bundle(wildcards.system),
            model="input.model",
            base=input_if_any(BASE),
            roles=options_of_roles,
            subwords=folder_of("input.subwords"),
            normalisation=lambda job: plan.loaded.normalisation.model_dump(mode="json"),
            output_folder=folder_of("output.bundle"),
        ),
    message:
        "Exporting {wildcards.system}, seed {wildcards.seed}"
    shell:
        COMMAND


# Engines that read files of their own, and a rule for each.
for engine in EXPORTING:

    rule:
        name:
            engine.export_rule
        input:
            bundle=rules.export_bundle.output.bundle,
        output:
            bundle=plan.export_file(engine.exports, "{system}", "{seed}"),
        log:
            f"{LOGS}/{engine.export_rule}/{{system}}/seed-{{seed}}.log",
        benchmark:
            f"{BENCHMARKS}/{engine.export_rule}/{{system}}/seed-{{seed}}.tsv"
        conda:
            "../envs/cpu.yaml"
        threads: 1
        resources:
            mem_mb=needs.memory(engine.export_rule),
            runtime=needs.minutes(engine.export_rule),
            slurm_partition=needs.partition(gpu=False),
        params:
            **stage(
                "export_engine",
                lambda plan, wildcards: "{}",
                engine=lambda job, name=engine.name: name,
                bundle=folder_of("input.bundle"),
                output_folder=folder_of("output.bundle"),
            ),
        message:
            f"Exporting {{wildcards.system}}, seed {{wildcards.seed}}, to {engine.title}"
        shell:
            COMMAND


rule finish_bundle:
    input:
        unpack(finish_inputs),
    output:
        bundle=plan.finished_file("{system}", "{seed}", "{kind}"),
    log:
        f"{EXPERIMENT_LOGS}/finish_bundle/{{kind}}/{{system}}/seed-{{seed}}.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/finish_bundle/{{kind}}/{{system}}/seed-{{seed}}.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("finish_bundle"),
        runtime=needs.minutes("finish_bundle"),
        slurm_partition=needs.partition(gpu=False),
    params:
        **stage(
            "finish_bundle",
            lambda plan, wildcards: plan.settings_finish(wildcards.system, wildcards.seed, finished_from(wildcards)),
            bundle=folder_of("input.bundle"),
            output_folder=folder_of("output.bundle"),
        ),
    message:
        "Finishing the bundle of {wildcards.system}, seed {wildcards.seed}, with what dev chose ({wildcards.kind})"
    shell:
        COMMAND
