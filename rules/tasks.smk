rule save_config:
    """The resolved configuration, beside the results; every step reads it."""
    output:
        "<results>/config.yaml",
    log:
        "<results>/logs/save_config.log",
    benchmark:
        "<results>/benchmarks/save_config.tsv"
    localrule: True
    params:
        text=yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False),
    shell:
        "printf '%s' {params.text:q} > {output} 2> {log}"


rule build_tasks:
    """Training and evaluation tasks, filtered and split."""
    input:
        config=ancient("<results>/config.yaml"),
    output:
        tasks="<results>/tasks.parquet",
        split="<results>/split.yaml",
    log:
        "<results>/logs/build_tasks.log",
    benchmark:
        "<results>/benchmarks/build_tasks.tsv"
    threads: all_cores()
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        depends=TASKS_DIGEST,
    shell:
        "kevin --log {log} tasks build --config {input.config} --out {output.tasks}"
        " --split-file {output.split}"
