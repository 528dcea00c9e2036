"""Translations -> quality; bundles -> speed, and example sentences at every refinement step."""

# Metrics that programs in environments of their own compute: one body, and a rule for each that is declared.
for metric in PROGRAMS:

    rule:
        name:
            metric.rule
        input:
            text=rules.decode.output.text,
            details=rules.decode.output.details,
            source=FILES.source,
            reference=FILES.reference,
            files=list(plan.program_files(metric.name).values()),
        output:
            figures=FILES.computed.replace("{metric}", metric.name),
        log:
            f"{EXPERIMENT_LOGS}/{metric.rule}/{{system}}/seed-{{seed}}/{{search}}/{{split}}.log",
        benchmark:
            f"{EXPERIMENT_BENCHMARKS}/{metric.rule}/{{system}}/seed-{{seed}}/{{search}}/{{split}}.tsv"
        conda:
            str(metric.program.environment)
        threads: RUNTIME.training_threads
        resources:
            **GPU,
        params:
            **params.program(metric.name),
        message:
            f"{metric.title} of {{wildcards.split}}, {{wildcards.system}}, seed {{wildcards.seed}}: {{wildcards.search}}"
        shell:
            COMMAND


use rule cpu as score_quality with:
    input:
        hypotheses=rules.decode.output.text,
        details=rules.decode.output.details,
        source=FILES.source,
        reference=lambda wildcards: plan.references(wildcards.split),
        computed=plan.figures_of_programs,
    output:
        quality=FILES.quality,
    log:
        f"{EXPERIMENT_LOGS}/score_quality/{{system}}/seed-{{seed}}/{{search}}/{{split}}.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/score_quality/{{system}}/seed-{{seed}}/{{search}}/{{split}}.tsv"
    params:
        **stage(
            "score_quality",
            Plan.settings_quality,
            ["hypotheses", "details", "source", "reference", "computed"],
            output="output.quality",
        ),
    message:
        "Scoring {wildcards.split} of {wildcards.system}, seed {wildcards.seed}: {wildcards.search}"


for test_set in plan.compared_sets:

    rule:
        name:
            plan.rule_on("compare_rows", test_set)
        input:
            **plan.compared_rows(test_set),
        output:
            significance=plan.significance(test_set),
        log:
            f"{EXPERIMENT_LOGS}/{plan.rule_on('compare_rows', test_set)}.log",
        benchmark:
            f"{EXPERIMENT_BENCHMARKS}/{plan.rule_on('compare_rows', test_set)}.tsv"
        conda:
            "../envs/cpu.yaml"
        threads: 1
        resources:
            **CPU,
        params:
            **params.comparison(test_set),
        message:
            "Comparing every row with its baseline and with autoregressive rows"
            + (f" on {test_set}" if len(plan.compared_sets) > 1 else "")
        shell:
            COMMAND


use rule gpu as measure_speed with:
    input:
        **plan.exports,
        chosen=list(plan.chosen_for_speed.values()),
        bundles=plan.exported_bundles,
        source=plan.corpus(plan.test, "source"),
    output:
        speed=FILES.speed,
    log:
        f"{EXPERIMENT_LOGS}/measure_speed.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/measure_speed.tsv"
    # All cores are claimed, whatever the measuring process uses, so that no other job disturbs it.
    threads: lambda wildcards: snakemake_parts.cores(workflow, RUNTIME.speed_threads)
    resources:
        **MEASURING,
    params:
        **params.speed,
    message:
        "Measuring the speed of every system, alone on the machine"


use rule gpu as analyse with:
    input:
        bundles=plan.exported_bundles,
        source=plan.corpus(plan.test, "source"),
        reference=plan.reference(plan.test),
    output:
        traces=FILES.traces,
    log:
        f"{EXPERIMENT_LOGS}/analyse.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/analyse.tsv"
    params:
        **stage(
            "analyse",
            Plan.settings_analysis,
            ["source", "reference"],
            bundles=folders_by_system,
            output="output.traces",
        ),
    message:
        "Following example sentences through every refinement step"
