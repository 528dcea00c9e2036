"""Models that were made elsewhere -> bundles, with the subwords and the normalisation of the recipe."""


use rule cpu as import_model with:
    input:
        files=lambda wildcards: list(plan.imported_files(wildcards.system).values()),
        subwords=rules.learn_subwords.output.summary,
    output:
        bundle=FILES.bundle,
    log:
        f"{LOGS}/import_model/{{system}}/seed-{{seed}}.log",
    benchmark:
        f"{BENCHMARKS}/import_model/{{system}}/seed-{{seed}}.tsv"
    wildcard_constraints:
        system=one_of(plan.imported),
    params:
        **stage(
            "import_model",
            Plan.settings_import,
            ["seed"],
            of=["system"],
            files=lambda job: plan.imported_files(job.wildcards.system),
            **params.bundling,
        ),
    message:
        "Importing {wildcards.system}, seed {wildcards.seed}"
