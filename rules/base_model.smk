PAST = f"{study.results}/past"
# What a pretraining starts from, where that takes long to read: read while kernels for it are judged.
UNPACKED = (
    {"weights": f"{study.results}/pretrained"}
    if is_packed(study.base_model.init)
    else {}
)
# What its later turns go on from.
JUDGED_PAST = (
    {
        "past_tasks": f"{PAST}/tasks.parquet",
        "past": f"{PAST}/written/turns.parquet",
    }
    if study.base_model.has_past
    else {}
)
PRETRAINING_GPUS = study.base_model.pretraining.num_gpus if NEEDS["gpu"] else 0


rule train_base_model:
    """The study's own base language model: from scratch, or pretrained weights, on the kernel writer's transcripts."""
    input:
        **UNPACKED,
        **JUDGED_PAST,
        given=weight_files,
        image=IMAGE_DIGEST,
    output:
        directory("<results>/base_model"),
    log:
        "<results>/logs/train_base_model.log",
    benchmark:
        "<results>/benchmarks/train_base_model.tsv"
    priority: PRIORITY["base_model"]
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=PRETRAINING_GPUS,
    params:
        config=CONFIG,
        depends=digests.base_model,
        starts_from=" ".join(
            repeat(f"--{name.replace('_', '-')}", [file])
            for name, file in {**UNPACKED, **JUDGED_PAST}.items()
        ),
    shell:
        "kevin --log {log:q} base-model --config {params.config:q} {params.starts_from} --out {output:q}"


rule unpack_weights:
    """Pretrained weights that come as a GGUF file, in a folder that loads at once."""
    input:
        image=IMAGE_DIGEST,
    output:
        temp(directory("<results>/pretrained")),
    log:
        "<results>/logs/unpack_weights.log",
    benchmark:
        "<results>/benchmarks/unpack_weights.tsv"
    priority: PRIORITY["base_model"]
    resources:
        mem_mb=NEEDS["mem_mb"],
        runtime=30,
    params:
        config=CONFIG,
        depends=digests.weights,
    shell:
        "kevin --log {log:q} unpack-weights --config {params.config:q} --out {output:q}"


rule draw_past_tasks:
    """Tasks whose judged kernels later turns of the pretraining go on from."""
    input:
        image=IMAGE_DIGEST,
    output:
        f"{PAST}/tasks.parquet",
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
        tasks=f"{PAST}/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        f"{PAST}/written/turns.parquet",
    log:
        "<results>/logs/judge_past.log",
    benchmark:
        "<results>/benchmarks/judge_past.tsv"
    priority: PRIORITY["base_model"]
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=PRETRAINING_GPUS,
    params:
        config=CONFIG,
        depends=digests.past,
        store=f"{study.results}/store",
    shell:
        "kevin --log {log:q} past written --config {params.config:q} --tasks {input.tasks:q}"
        " --store {params.store:q} --out {output:q}"


rule write_random_model:
    """Random weights in a model's shapes and answers of the kernel writer, for a rehearsal."""
    input:
        tasks="<results>/tasks.parquet",
        shapes=lambda wildcards: study.policies[wildcards.policy].random_shapes,
        image=IMAGE_DIGEST,
    output:
        directory(f"{study.results}/{RANDOM_MODELS}/{{policy}}"),
    log:
        "<results>/logs/write_random_model-{policy}.log",
    benchmark:
        "<results>/benchmarks/write_random_model-{policy}.tsv"
    priority: PRIORITY["base_model"]
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=60,
        gpu=min(1, NEEDS["gpu"]),
    params:
        config=CONFIG,
        depends=random_model_digest,
    shell:
        "kevin --log {log:q} random-model --config {params.config:q} --like {input.shapes:q} --tasks {input.tasks:q}"
        " --out {output:q}"


rule check_base_model:
    """Whether the base model has learned what is expected of it; otherwise the study ends here."""
    input:
        model=BASE_MODEL,
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        BASE_MODEL_CHECK,
    log:
        "<results>/logs/check_base_model.log",
    benchmark:
        "<results>/benchmarks/check_base_model.tsv"
    priority: PRIORITY["base_model"]
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=min(1, NEEDS["gpu"]),
    params:
        config=CONFIG,
        depends=digests.base_model_check,
        store=f"{study.results}/store",
    shell:
        "kevin --log {log:q} check-base-model --config {params.config:q} --model {input.model:q} --tasks {input.tasks:q}"
        " --store {params.store:q} --out {output:q}"
