rule build_tasks:
    """Training and evaluation tasks, filtered and split."""
    input:
        given=looked_for(given.require_tasks),
        image=IMAGE_DIGEST,
    output:
        tasks="<results>/tasks.parquet",
        split="<results>/split.yaml",
    log:
        "<results>/logs/build_tasks.log",
    benchmark:
        "<results>/benchmarks/build_tasks.tsv"
    threads: study.judge.num_threads
    resources:
        cpus_per_task=machine.needs.cores,
        mem_mb=4000,
        runtime=30,
    params:
        config=CONFIG,
        depends=digests.tasks,
    shell:
        "kevin --log {log:q} tasks build --config {params.config:q} --out {output.tasks:q}"
        " --split-file {output.split:q}"
