rule measure_baselines:
    """Every held-out task in eager and compiled PyTorch on the judging device."""
    input:
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        f"<results>/baselines/{DEVICE}.parquet",
    log:
        "<results>/logs/measure_baselines.log",
    benchmark:
        "<results>/benchmarks/measure_baselines.tsv"
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=min(1, NEEDS["gpu"]),
    params:
        config=CONFIG,
        depends=digests.baselines,
    shell:
        "kevin --log {log:q} baselines --config {params.config:q} --tasks {input.tasks:q} --out {output:q}"


rule judge_ceiling:
    """The best that the kernel writer knows: what a policy trained on its transcripts can reach."""
    input:
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        f"<results>/rollouts/{CEILING}-{{split}}/turns.parquet",
    log:
        f"<results>/logs/judge_ceiling-{{split}}.log",
    benchmark:
        "<results>/benchmarks/judge_ceiling-{split}.tsv"
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=min(1, NEEDS["gpu"]),
    params:
        config=CONFIG,
        depends=digests.ceiling,
        store=f"{study.results}/store",
    shell:
        "kevin --log {log:q} ceiling --config {params.config:q} --tasks {input.tasks:q} --split {wildcards.split:q}"
        " --store {params.store:q} --out {output:q}"
