"""The analyses of the paper: marginal log-probabilities, changes of tokens, lengths, samples, the latent space."""


rule estimate_marginal:
    input:
        **analysis_inputs("marginal"),
    output:
        analysis=plan.analyses["marginal"].path,
    log:
        f"{EXPERIMENT_LOGS}/estimate_marginal.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/estimate_marginal.tsv"
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("estimate_marginal"),
        runtime=needs.minutes("estimate_marginal"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
        device=RUNTIME.device,
        precision=RUNTIME.precision,
        chunk=plan.config.analyses.marginal.chunk,
    params:
        settings=plan.analyses["marginal"].settings,
        bundles=analysis_bundles,
    message:
        "Estimating the marginal log-probability of every procedure's outputs"
    shell:
        "python -m workflow_src.stages.estimate_marginal --settings {params.settings:q} --log {log:q}"
        " --bundles {params.bundles:q} --source {input.source:q} --target {input.target:q}"
        " --reference {input.reference:q} --output {output.analysis:q}"
        " --device {resources.device} --precision {resources.precision}"
        " --chunk {resources.chunk}"


rule compare_tokens:
    input:
        **analysis_inputs("tokens"),
    output:
        analysis=plan.analyses["tokens"].path,
    log:
        f"{EXPERIMENT_LOGS}/compare_tokens.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/compare_tokens.tsv"
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("compare_tokens"),
        runtime=needs.minutes("compare_tokens"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
        device=RUNTIME.device,
        precision=RUNTIME.precision,
    params:
        settings=plan.analyses["tokens"].settings,
        bundles=analysis_bundles,
    message:
        "Counting what refinement changes, in subwords"
    shell:
        "python -m workflow_src.stages.compare_tokens --settings {params.settings:q} --log {log:q}"
        " --bundles {params.bundles:q} --source {input.source:q} --target {input.target:q}"
        " --reference {input.reference:q} --output {output.analysis:q}"
        " --device {resources.device} --precision {resources.precision}"


rule measure_lengths:
    input:
        **analysis_inputs("lengths"),
    output:
        analysis=plan.analyses["lengths"].path,
    log:
        f"{EXPERIMENT_LOGS}/measure_lengths.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/measure_lengths.tsv"
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("measure_lengths"),
        runtime=needs.minutes("measure_lengths"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
        device=RUNTIME.device,
        precision=RUNTIME.precision,
    params:
        settings=plan.analyses["lengths"].settings,
        bundles=analysis_bundles,
    message:
        "Measuring how well lengths are predicted"
    shell:
        "python -m workflow_src.stages.measure_lengths --settings {params.settings:q} --log {log:q}"
        " --bundles {params.bundles:q} --source {input.source:q} --target {input.target:q}"
        " --reference {input.reference:q} --output {output.analysis:q}"
        " --device {resources.device} --precision {resources.precision}"


rule sample_translations:
    input:
        **analysis_inputs("samples"),
    output:
        analysis=plan.analyses["samples"].path,
    log:
        f"{EXPERIMENT_LOGS}/sample_translations.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/sample_translations.tsv"
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("sample_translations"),
        runtime=needs.minutes("sample_translations"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
        device=RUNTIME.device,
        precision=RUNTIME.precision,
    params:
        settings=plan.analyses["samples"].settings,
        bundles=analysis_bundles,
    message:
        "Refining translations of samples from the prior"
    shell:
        "python -m workflow_src.stages.sample_translations --settings {params.settings:q} --log {log:q}"
        " --bundles {params.bundles:q} --source {input.source:q} --target {input.target:q}"
        " --reference {input.reference:q} --output {output.analysis:q}"
        " --device {resources.device} --precision {resources.precision}"


rule map_latent_space:
    input:
        **analysis_inputs("latent_space"),
    output:
        analysis=plan.analyses["latent_space"].path,
    log:
        f"{EXPERIMENT_LOGS}/map_latent_space.log",
    benchmark:
        f"{EXPERIMENT_BENCHMARKS}/map_latent_space.tsv"
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("map_latent_space"),
        runtime=needs.minutes("map_latent_space"),
        slurm_partition=needs.partition(gpu=True),
        gpu=GPUS,
        device=RUNTIME.device,
        precision=RUNTIME.precision,
    params:
        settings=plan.analyses["latent_space"].settings,
        bundles=analysis_bundles,
    message:
        "Mapping the latent space of one sentence"
    shell:
        "python -m workflow_src.stages.map_latent_space --settings {params.settings:q} --log {log:q}"
        " --bundles {params.bundles:q} --source {input.source:q} --target {input.target:q}"
        " --reference {input.reference:q} --output {output.analysis:q}"
        " --device {resources.device} --precision {resources.precision}"
