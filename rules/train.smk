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
            f"{LOGS}/{training_rule}/{{system}}-{{seed}}.log",
        benchmark:
            f"{BENCHMARKS}/{training_rule}/{{system}}-{{seed}}.tsv"
        wildcard_constraints:
            system=systems_of(training_rule),
        priority: AWAITED
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
            device=RUNTIME.device,
            precision=RUNTIME.precision,
            compile=str(RUNTIME.compile),
            log_every=RUNTIME.log_every,
            save_every=lambda wildcards: plan.system(wildcards.system).training.save_every,
            save_minutes=str(RUNTIME.save_minutes),
            max_skipped=lambda wildcards: plan.system(wildcards.system).training.max_skipped,
            split_batches=str(RUNTIME.split_batches),
        params:
            settings=lambda wildcards: plan.settings_training(wildcards.system),
            train=input_prefixes("train"),
            dev=input_prefix("dev"),
            test=input_prefixes("test"),
            subwords=input_folder("subwords"),
            built_on=options_built_on,
            initial=option("initial"),
            state=state_folder,
            folder=output_folder("weights"),
        message:
            "Training {wildcards.system}, seed {wildcards.seed}"
        shell:
            "{resources.launch} workflow_src.stages.train --settings {params.settings:q} --log {log:q}"
            " --seed {wildcards.seed} --train {params.train:q} --dev {params.dev:q} --test {params.test:q}"
            " --subwords {params.subwords:q}"
            " --reference {input.reference:q} --corpus-summary {input.summary:q} {params.built_on} {params.initial}"
            " --state {params.state:q} --output-folder {params.folder:q} --threads {threads}"
            " --device {resources.device} --precision {resources.precision} --compile {resources.compile}"
            " --log-every {resources.log_every} --save-every {resources.save_every}"
            " --save-minutes {resources.save_minutes} --max-skipped {resources.max_skipped} --split-batches {resources.split_batches}"
