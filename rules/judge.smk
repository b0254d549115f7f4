rule measure_baselines:
    """Every held-out task in eager and compiled PyTorch on the judging device."""
    input:
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        targets.baselines,
    log:
        "<results>/logs/measure_baselines.log",
    benchmark:
        "<results>/benchmarks/measure_baselines.tsv"
    threads: machine.threads
    resources:
        **machine.share(gpus=1),
    params:
        config=CONFIG,
        depends=digests.baselines,
    shell:
        "kevin --log {log:q} baselines --config {params.config:q} --tasks {input.tasks:q} --out {output:q}"


rule table_attacks:
    """Every attack that was tried on the judge: its verdict, its honest control's, and what KernelBench says of both."""
    input:
        image=IMAGE_DIGEST,
    output:
        report("<results>/tables/attacks.csv", **REPORTED),
        "<results>/tables/attacks.md",
        "<results>/tables/attacks.tex",
    log:
        "<results>/logs/table_attacks.log",
    benchmark:
        "<results>/benchmarks/table_attacks.tsv"
    threads: machine.threads
    resources:
        **machine.share(gpus=1),
    params:
        depends=digests.attacks,
        device=study.judge.device,
        store=STORE,
        folder=subpath(output[0], parent=True),
    shell:
        "kevin --log {log:q} bench attacks --device {params.device} --store {params.store:q} --out {params.folder:q}"


rule table_judge_errors:
    """How often the judge errs: wrong kernels that it would pay, odd right ones that it refuses, by kind."""
    input:
        image=IMAGE_DIGEST,
    output:
        report("<results>/tables/judge_errors.csv", **REPORTED),
        "<results>/tables/judge_errors.md",
        "<results>/tables/judge_errors.tex",
        "<results>/tables/judge_errors_rows.csv",
    log:
        "<results>/logs/table_judge_errors.log",
    benchmark:
        "<results>/benchmarks/table_judge_errors.tsv"
    threads: machine.threads
    resources:
        **machine.share(gpus=1),
    params:
        config=CONFIG,
        depends=digests.judge_errors(Path(workflow.basedir, "tests", "mutants")),
        mutants=Path(workflow.basedir, "tests", "mutants"),
        store=STORE,
        folder=subpath(output[0], parent=True),
    shell:
        "kevin --log {log:q} bench errors --config {params.config:q} --mutants {params.mutants:q} --store {params.store:q}"
        " --out {params.folder:q}"
