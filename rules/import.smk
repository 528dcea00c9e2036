"""Models that were made elsewhere -> bundles, with the subwords and the normalisation of the recipe."""


rule import_model:
    input:
        files=lambda wildcards: list(plan.imported_files(wildcards.system).values()),
        subwords=SUBWORDS,
    output:
        bundle=plan.bundle_file("{system}", "{seed}"),
    log:
        f"{LOGS}/import_model/{{system}}/seed-{{seed}}.log",
    benchmark:
        f"{BENCHMARKS}/import_model/{{system}}/seed-{{seed}}.tsv"
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
        **stage(
            "import_model",
            lambda plan, wildcards: plan.settings_import(wildcards.system),
            languages=lambda job: LANGUAGES,
            seed="wildcards.seed",
            files=lambda job: plan.imported_files(job.wildcards.system),
            subwords=folder_of("input.subwords"),
            normalisation=lambda job: plan.loaded.normalisation.model_dump(mode="json"),
            output_folder=folder_of("output.bundle"),
        ),
    message:
        "Importing {wildcards.system}, seed {wildcards.seed}"
    shell:
        COMMAND
