rule train_base_model:
    """The study's own base language model, from scratch on the kernel writer's transcripts."""
    input:
        image=IMAGE_DIGEST,
    output:
        directory("<results>/base_model"),
    log:
        "<results>/logs/train_base_model.log",
    benchmark:
        "<results>/benchmarks/train_base_model.tsv"
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=min(1, NEEDS["gpu"]),
    params:
        config=CONFIG,
        depends=step_digest(BASE_MODEL_PARTS),
    shell:
        "kevin --log {log:q} base-model --config {params.config:q} --out {output:q}"
