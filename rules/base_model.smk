PAST = f"{study.results}/past"
# What a school starts from, where that takes long to read: read while kernels for it are judged.
UNPACKED = (
    {"weights": f"{study.results}/pretrained"}
    if is_packed(study.base_model.init)
    else {}
)
# Of the base model's rule with a second school: what that starts from, and goes on from.
SCHOOLED = (
    {
        **({"init": FIRST_SCHOOL} if study.base_model.has_two_schools else UNPACKED),
        "past_tasks": f"{PAST}/tasks.parquet",
        "past": [f"{PAST}/{author}/turns.parquet" for author in AUTHORS],
    }
    if SECOND_SCHOOL is not None
    else UNPACKED
)
SCHOOL_GPUS = study.base_model.school_training.num_gpus if NEEDS["gpu"] else 0


rule train_base_model:
    """The study's own base language model: from scratch, or pretrained weights, on the kernel writer's transcripts."""
    input:
        **SCHOOLED,
        given=weight_files,
        image=IMAGE_DIGEST,
    output:
        directory("<results>/base_model"),
    log:
        "<results>/logs/train_base_model.log",
    benchmark:
        "<results>/benchmarks/train_base_model.tsv"
    priority: PRIORITY["school"]
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=SCHOOL_GPUS,
    params:
        config=CONFIG,
        depends=digests.base_model,
        second=" ".join(
            repeat(
                f"--{name.replace('_', '-')}",
                [files] if isinstance(files, str) else files,
            )
            for name, files in SCHOOLED.items()
        ),
    shell:
        "kevin --log {log:q} base-model --config {params.config:q} {params.second} --out {output:q}"


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
    priority: PRIORITY["school"]
    resources:
        mem_mb=NEEDS["mem_mb"],
        runtime=30,
    params:
        config=CONFIG,
        depends=digests.weights,
    shell:
        "kevin --log {log:q} unpack-weights --config {params.config:q} --out {output:q}"


rule train_first_school:
    """Pretrained weights on first turns of the kernel writer's transcripts, where a second school follows."""
    input:
        **UNPACKED,
        image=IMAGE_DIGEST,
    output:
        directory("<results>/first_school"),
    log:
        "<results>/logs/train_first_school.log",
    benchmark:
        "<results>/benchmarks/train_first_school.tsv"
    priority: PRIORITY["school"]
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=SCHOOL_GPUS,
    params:
        config=CONFIG,
        depends=digests.first_school,
        weights=repeat("--weights", UNPACKED.values()),
    shell:
        "kevin --log {log:q} base-model --config {params.config:q} {params.weights} --out {output:q}"


rule draw_past_tasks:
    """School tasks that are answered and judged before the second school."""
    input:
        image=IMAGE_DIGEST,
    output:
        f"{PAST}/tasks.parquet",
    log:
        "<results>/logs/draw_past_tasks.log",
    benchmark:
        "<results>/benchmarks/draw_past_tasks.tsv"
    priority: PRIORITY["school"]
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        config=CONFIG,
        depends=digests.past,
    shell:
        "kevin --log {log:q} past tasks --config {params.config:q} --out {output:q}"


rule judge_past:
    """Answers to them, judged: the first school's own, and the kernel writer's, right and with mistakes."""
    input:
        lambda wildcards: SCHOOLED["init"] if wildcards.author == "own" else [],
        tasks=f"{PAST}/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        f"{PAST}/{{author}}/turns.parquet",
    log:
        "<results>/logs/judge_past-{author}.log",
    benchmark:
        "<results>/benchmarks/judge_past-{author}.tsv"
    priority: PRIORITY["school"]
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=SCHOOL_GPUS,
    params:
        config=CONFIG,
        depends=digests.past,
        store=f"{study.results}/store",
        model=lambda wildcards: (
            repeat("--model", [SCHOOLED["init"]]) if wildcards.author == "own" else ""
        ),
    shell:
        "kevin --log {log:q} past {wildcards.author} --config {params.config:q} {params.model} --tasks {input.tasks:q}"
        " --store {params.store:q} --out {output:q}"


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
    priority: PRIORITY["school"]
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
