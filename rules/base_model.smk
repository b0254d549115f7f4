rule train_base_model:
    """The study's own base language model: from scratch, or pretrained weights, on the kernel writer's transcripts."""
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


rule check_base_model:
    """Whether the base model has learned what is expected of it; otherwise the study ends here."""
    input:
        model=BASE_MODEL,
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        "<results>/checks/base_model.json",
    log:
        "<results>/logs/check_base_model.log",
    benchmark:
        "<results>/benchmarks/check_base_model.tsv"
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=min(1, NEEDS["gpu"]),
    params:
        config=CONFIG,
        depends=step_digest(
            STEP_VERSIONS["base_model"],
            study.base_model.expected_loss,
            study.base_model.expected_correct_share,
            study.base_model.num_checked_kernels,
            JUDGE_DIGEST,
        ),
        store=f"{study.results}/store",
    shell:
        "kevin --log {log:q} check-base-model --config {params.config:q} --model {input.model:q} --tasks {input.tasks:q}"
        " --store {params.store:q} --out {output:q}"
