"""Every training: one body, and a rule for each name that families declare, such as train_teacher and train_refiner."""

for training_rule in TRAININGS:

    rule:
        name:
            training_rule
        input:
            unpack(training_inputs),
        output:
            weights=plan.weights("{system}", "{seed}"),
            config=f"{plan.system_folder('{system}', '{seed}')}/config.json",
            training=f"{plan.system_folder('{system}', '{seed}')}/training.jsonl",
        log:
            f"{LOGS}/{training_rule}/{{system}}/seed-{{seed}}.log",
        benchmark:
            f"{BENCHMARKS}/{training_rule}/{{system}}/seed-{{seed}}.tsv"
        wildcard_constraints:
            system=systems_of(training_rule),
        priority: priority_of_training
        conda:
            "../envs/gpu.yaml"
        threads: RUNTIME.training_threads * RUNTIME.devices
        resources:
            **({} if training_rule in COUNTED else SEVERAL_NODES),
            mem_mb=needs.memory(training_rule),
            runtime=needs.minutes(training_rule),
            slurm_partition=needs.partition(gpu=training_rule not in COUNTED),
            gpu=0 if training_rule in COUNTED else GPUS * RUNTIME.devices * RUNTIME.nodes,
            launch="python -m" if training_rule in COUNTED else RUNTIME.launch,
        params:
            **stage(
                "train",
                lambda plan, wildcards: plan.settings_training(wildcards.system),
                seed="wildcards.seed",
                train=prefixes_of("input.train"),
                dev=prefix_of("input.dev"),
                subwords=folder_of("input.subwords"),
                reference="input.reference",
                corpus_summary="input.summary",
                base=input_if_any(BASE),
                roles=options_of_roles,
                initial=input_if_any("initial"),
                # No rule declares it, so that it outlives failed jobs.
                state=lambda job: plan.state_folder(job.wildcards.system, job.wildcards.seed),
                output_folder=folder_of("output.weights"),
                save_every=lambda job: plan.system(job.wildcards.system).training.save_every,
                max_skipped=lambda job: plan.system(job.wildcards.system).training.max_skipped,
            ),
        message:
            "Training {wildcards.system}, seed {wildcards.seed}"
        shell:
            "{resources.launch} workflow_src.stages.train --job {params.job} --log {log:q} --threads {threads}"
