"""Models that were made elsewhere -> bundles, with the subwords and the normalisation of the recipe."""


rule import_model:
    input:
        files=lambda wildcards: list(plan.imported_files(wildcards.system).values()),
        subwords=SUBWORDS,
    output:
        bundle=plan.bundle_file("{system}", "{seed}"),
    log:
        f"{LOGS}/import_model/{{system}}-{{seed}}.log",
    benchmark:
        f"{BENCHMARKS}/import_model/{{system}}-{{seed}}.tsv"
    wildcard_constraints:
        system=IMPORTED,
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        mem_mb=needs.memory("import_model"),
        runtime=needs.minutes("import_model"),
        slurm_partition=needs.partition(gpu=False),
    params:
        settings=lambda wildcards: plan.settings_import(wildcards.system),
        files=lambda wildcards: [f"{name}={path}" for name, path in plan.imported_files(wildcards.system).items()],
        normalisation=plan.loaded.normalisation.canonical(),
        subwords=input_folder("subwords"),
        folder=output_folder("bundle"),
    message:
        "Importing {wildcards.system}, seed {wildcards.seed}"
    shell:
        "python -m workflow_src.stages.import_model --settings {params.settings:q} --log {log:q}"
        " --seed {wildcards.seed} --files {params.files:q} --subwords {params.subwords:q}"
        " --normalisation {params.normalisation:q} --output-folder {params.folder:q}"
