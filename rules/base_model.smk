rule train_base_model:
    """The study's own base language model: from scratch, or pretrained weights, on the kernel writer's transcripts."""
    input:
        **targets.pretrained_from,
        given=looked_for(given.require_weights),
        image=IMAGE_DIGEST,
    output:
        directory("<results>/base_model"),
    log:
        "<results>/logs/train_base_model.log",
    benchmark:
        "<results>/benchmarks/train_base_model.tsv"
    priority: PRIORITY["base_model"]
    threads: machine.threads
    resources:
        **machine.share(gpus=study.base_model.pretraining.num_gpus),
    params:
        config=CONFIG,
        depends=digests.base_model,
        starts_from=options(targets.pretrained_from),
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
        mem_mb=machine.needs.mem_mb,
        runtime=30,
    params:
        config=CONFIG,
        depends=digests.weights,
    shell:
        "kevin --log {log:q} unpack-weights --config {params.config:q} --out {output:q}"


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
    threads: machine.threads
    resources:
        **machine.share(gpus=1) | {"runtime": 60},
    params:
        config=CONFIG,
        depends=lambda wildcards: digests.random_model(wildcards.policy),
    shell:
        "kevin --log {log:q} random-model --config {params.config:q} --like {input.shapes:q} --tasks {input.tasks:q}"
        " --out {output:q}"


rule check_base_model:
    """Whether the base model has learned what is expected of it; otherwise the study ends here."""
    input:
        model=targets.base_model,
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        targets.base_model_check,
    log:
        "<results>/logs/check_base_model.log",
    benchmark:
        "<results>/benchmarks/check_base_model.tsv"
    priority: PRIORITY["base_model"]
    threads: machine.threads
    resources:
        **machine.share(gpus=1),
    params:
        config=CONFIG,
        depends=digests.base_model_check,
        store=STORE,
    shell:
        "kevin --log {log:q} check-base-model --config {params.config:q} --model {input.model:q} --tasks {input.tasks:q}"
        " --store {params.store:q} --out {output:q}"
