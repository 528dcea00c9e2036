"""What rules of stages share; `use rule … with` adds the files. Rules in loops, whose names are declared, repeat it."""


rule cpu:
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        **CPU,
    shell:
        COMMAND


rule gpu:
    conda:
        "../envs/gpu.yaml"
    threads: 1
    resources:
        **GPU,
    shell:
        COMMAND
