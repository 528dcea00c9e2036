"""Every training: one body, and a rule for each name that families declare, such as train_teacher and train_refiner."""

for training_rule in TRAININGS:

    rule:
        name:
            training_rule
        input:
            unpack(plan.training_inputs),
        output:
            weights=FILES.weights,
            config=FILES.config,
            training=FILES.training,
        log:
            f"{LOGS}/{training_rule}/{{system}}/seed-{{seed}}.log",
        benchmark:
            f"{BENCHMARKS}/{training_rule}/{{system}}/seed-{{seed}}.tsv"
        wildcard_constraints:
            system=one_of(plan.systems_of(training_rule)),
        priority: priority_of_training
        conda:
            "../envs/gpu.yaml"
        threads: RUNTIME.training_threads * RUNTIME.devices
        resources:
            **(COUNTING if training_rule in COUNTED else TRAINING),
        params:
            **params.training,
        message:
            "Training {wildcards.system}, seed {wildcards.seed}"
        shell:
            f"{{resources.launch}} workflow_src.stages.train {OPTIONS}"
