"""Translations -> quality; bundles -> speed, and example sentences at every refinement step."""

# Metrics that programs in environments of their own compute: one body, and a rule for each that is declared.
for metric in PROGRAMS:

    rule:
        name:
            metric.rule
        input:
            text=rules.decode.output.text,
            details=rules.decode.output.details,
            source=plan.corpus("{split}", "source"),
            reference=plan.reference("{split}"),
            files=list(plan.program_files(metric.name).values()),
        output:
            figures=plan.computed(metric.name, ANY_DECODE, "{seed}", "{split}"),
        log:
            f"{EXPERIMENT_LOGS}/{metric.rule}/{{system}}/seed-{{seed}}/{{search}}/{{split}}.log",
        benchmark:
            f"{EXPERIMENT_BENCHMARKS}/{metric.rule}/{{system}}/seed-{{seed}}/{{search}}/{{split}}.tsv"
        conda:
            str(metric.program.environment)
        threads: RUNTIME.training_threads
        resources:
            mem_mb=needs.memory(metric.rule),
            runtime=needs.minutes(metric.rule),
            slurm_partition=needs.partition(gpu=True),
            gpu=GPUS,
        params:
            **stage(
                "score_sentences",
                lambda plan, wildcards, name=metric.name: plan.settings_program(name),
                hypotheses="input.text",
                details="input.details",
                source="input.source",
                reference="input.reference",
                output="output.figures",
                cache=lambda job, name=metric.name: plan.figure_cache(name),
                metric=lambda job, name=metric.name: name,
            ),
        message:
            f"Scoring {{wildcards.split}} of {{wildcards.system}}, seed {{wildcards.seed}}: {{wildcards.search}}, by"
            f" {metric.title}"
        shell:
            COMMAND


rule score_quality:
    input:
        text=rules.decode.output.text,
        details=rules.decode.output.details,
        source=plan.corpus("{split}", "source"),
        reference=lambda wildcards: plan.references(wildcards.split),
        computed=computed_figures,
    output:
        quality=plan.quality(ANY_DECODE, "{seed}", "{split}"),
    log:
        f"{EXPERIMENT_LOGS}/score_quality/{{system}}/seed-{{seed}}/{{search}}/{{split}}.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/score_quality/{{system}}/seed-{{seed}}/{{search}}/{{split}}.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("score_quality"),
        runtime=needs.minutes("score_quality"),
        slurm_partition=needs.partition(gpu=False),
    params:
        **stage(
            "score_quality",
            lambda plan, wildcards: plan.settings_quality(),
            hypotheses="input.text",
            details="input.details",
            source="input.source",
            reference="input.reference",
            computed="input.computed",
            output="output.quality",
        ),
    message:
        "Scoring {wildcards.split} of {wildcards.system}, seed {wildcards.seed}: {wildcards.search}"
    shell:
        COMMAND


for test_set in plan.compared_sets:

    rule:
        name:
            plan.rule_on("compare_rows", test_set)
        input:
            translations=[plan.translation(*row) for row in plan.rows if row[2] == test_set],
            details=[plan.translation_details(*row) for row in plan.rows if row[2] == test_set],
            computed=[file for row in plan.rows if row[2] == test_set for file in plan.computed_figures(*row)],
            source=plan.corpus(test_set, "source"),
            reference=plan.references(test_set),
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
            mem_mb=needs.memory("compare_rows"),
            runtime=needs.minutes("compare_rows"),
            slurm_partition=needs.partition(gpu=False),
        params:
            **stage(
                "compare_rows",
                lambda plan, wildcards, name=test_set: plan.settings_significance(name),
                source="input.source",
                reference="input.reference",
                computed="input.computed",
                output="output.significance",
            ),
        message:
            "Comparing every row with its baseline and with autoregressive rows"
            + (f" on {test_set}" if len(plan.compared_sets) > 1 else "")
        shell:
            COMMAND


rule measure_speed:
    input:
        **EXPORTED,
        chosen=[plan.chosen(decode, FIRST_SEED) for decode, seed in plan.tuned if seed == FIRST_SEED],
        bundles=EXPORTED_BUNDLES,
        source=plan.corpus(plan.test, "source"),
    output:
        speed=plan.speed,
    log:
        f"{EXPERIMENT_LOGS}/measure_speed.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/measure_speed.tsv"
    conda:
        "../envs/gpu.yaml"
    # All cores are claimed, whatever the measuring process uses, so that no other job disturbs it.
    threads: all_cores
    resources:
        mem_mb=needs.memory("measure_speed"),
        runtime=needs.minutes("measure_speed"),
        slurm_partition=needs.partition(gpu=True),
        # A node to itself. Not in the profile, whose resources any --set-resources on the command line replaces.
        slurm_extra="--exclusive",
        # Every place on its GPU.
        gpu=GPUS * PLACES,
    params:
        **stage(
            "measure_speed",
            lambda plan, wildcards: plan.settings_speed(),
            bundles=bundle_folders,
            exports=export_folders,
            source="input.source",
            output="output.speed",
        ),
    message:
        "Measuring the speed of every system, alone on the machine"
    shell:
        COMMAND


rule analyse:
    input:
        bundles=EXPORTED_BUNDLES,
        source=plan.corpus(plan.test, "source"),
        reference=plan.reference(plan.test),
    output:
        traces=plan.traces,
    log:
        f"{EXPERIMENT_LOGS}/analyse.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/analyse.tsv"
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("analyse"),
        runtime=needs.minutes("analyse"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
    params:
        **stage(
            "analyse",
            lambda plan, wildcards: plan.settings_analysis(),
            bundles=bundle_folders,
            source="input.source",
            reference="input.reference",
            output="output.traces",
        ),
    message:
        "Following example sentences through every refinement step"
    shell:
        COMMAND
