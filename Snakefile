"""Continuum: from a raw parallel corpus to a table of non-autoregressive translation systems.

Stages lie in `rules/`, in the order of the flow; `snakemake --list` names them and further targets.
"""

from snakemake.utils import min_version

min_version("9.0")


configfile: f"{workflow.current_basedir}/config/config.yaml"


report: "rules/captions/workflow.rst"


include: "rules/common.smk"


rule all:
    input:
        FILES.report,


include: "rules/base.smk"
include: "rules/data.smk"
include: "rules/clean.smk"
include: "rules/train.smk"
include: "rules/import.smk"
include: "rules/distill.smk"
include: "rules/likelihood.smk"
include: "rules/export.smk"
include: "rules/decode.smk"
include: "rules/evaluate.smk"
include: "rules/analyse.smk"
include: "rules/report.smk"


for target, (files, _) in plan.targets.items():

    rule:
        name:
            target
        input:
            files,
        localrule: True


snakemake_parts.forget(workflow, "cpu", "gpu")
snakemake_parts.describe(workflow, plan.targets)
