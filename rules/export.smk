"""Trained systems -> bundles, which hold all a translation needs -> folders of engines, and bundles for users."""


use rule cpu as export_bundle with:
    input:
        unpack(plan.bundle_inputs),
        model=FILES.weights,
        subwords=rules.learn_subwords.output.summary,
    output:
        bundle=FILES.bundle,
    log:
        f"{LOGS}/export_bundle/{{system}}/seed-{{seed}}.log",
    benchmark:
        f"{BENCHMARKS}/export_bundle/{{system}}/seed-{{seed}}.tsv"
    wildcard_constraints:
        system=one_of([system for system in plan.loaded.systems if system not in plan.imported]),
    priority: AWAITED
    params:
        **stage("export_bundle", lambda plan: "{}", ["model", BASE], roles=weights_in_roles, **params.bundling),
    message:
        "Exporting {wildcards.system}, seed {wildcards.seed}"


# Engines that read files of their own, and a rule for each.
for engine in EXPORTING:

    rule:
        name:
            engine.export_rule
        input:
            bundle=rules.export_bundle.output.bundle,
        output:
            bundle=FILES.export.replace("{export}", engine.exports),
        log:
            f"{LOGS}/{engine.export_rule}/{{system}}/seed-{{seed}}.log",
        benchmark:
            f"{BENCHMARKS}/{engine.export_rule}/{{system}}/seed-{{seed}}.tsv"
        conda:
            "../envs/cpu.yaml"
        threads: 1
        resources:
            **CPU,
        params:
            **params.export(engine.name),
        message:
            f"Exporting {{wildcards.system}}, seed {{wildcards.seed}}, to {engine.title}"
        shell:
            COMMAND


use rule cpu as finish_bundle with:
    input:
        unpack(plan.finish_inputs),
    output:
        bundle=FILES.finished,
    log:
        f"{EXPERIMENT_LOGS}/finish_bundle/{{kind}}/{{system}}/seed-{{seed}}.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/finish_bundle/{{kind}}/{{system}}/seed-{{seed}}.tsv"
    params:
        **stage(
            "finish_bundle",
            Plan.settings_finish,
            of=["system", "seed", plan.finished_from],
            bundle=folder_of("input.bundle"),
            output_folder=folder_of("output.bundle"),
        ),
    message:
        "Finishing the bundle of {wildcards.system}, seed {wildcards.seed}, with what dev chose ({wildcards.kind})"
