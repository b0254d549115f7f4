# What later turns of a pretraining go on from.


rule draw_past_tasks:
    """Tasks whose judged kernels later turns of the pretraining go on from."""
    input:
        image=IMAGE_DIGEST,
    output:
        "<results>/past/tasks.parquet",
    log:
        "<results>/logs/draw_past_tasks.log",
    benchmark:
        "<results>/benchmarks/draw_past_tasks.tsv"
    priority: PRIORITY["base_model"]
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        config=CONFIG,
        depends=digests.past,
    shell:
        "kevin --log {log:q} past tasks --config {params.config:q} --out {output:q}"


rule judge_past:
    """The kernel writer's answers to them, right and with mistakes, judged."""
    input:
        tasks="<results>/past/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        "<results>/past/written/turns.parquet",
    log:
        "<results>/logs/judge_past.log",
    benchmark:
        "<results>/benchmarks/judge_past.tsv"
    priority: PRIORITY["base_model"]
    threads: machine.threads
    resources:
        **machine.share(gpus=study.base_model.pretraining.num_gpus),
    params:
        config=CONFIG,
        depends=digests.past,
        store=STORE,
    shell:
        "kevin --log {log:q} past written --config {params.config:q} --tasks {input.tasks:q}"
        " --store {params.store:q} --out {output:q}"
