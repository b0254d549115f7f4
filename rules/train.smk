rule train_policy:
    """Reinforcement learning on kernels judged for real; a killed run goes on from its last checkpoint."""
    input:
        initial_model,
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        "<results>/train/{run}/summary.json",
    log:
        "<results>/logs/train_policy-{run}.log",
    benchmark:
        "<results>/benchmarks/train_policy-{run}.tsv"
    priority: PRIORITY["train"]
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=NEEDS["gpu"],
    params:
        config=CONFIG,
        depends=run_digest,
        launcher=LAUNCHER,
        folder=lambda wildcards, output: str(Path(output[0]).parent),
        store=f"{study.results}/store",
    shell:
        "{params.launcher}kevin --log {log:q} train --config {params.config:q} --tasks {input.tasks:q} --run {wildcards.run:q}"
        " --store {params.store:q} --out {params.folder:q}"


rule export_policy:
    """The trained model and its tokenizer: a policy like any other."""
    input:
        "<results>/train/{run}/summary.json",
        image=IMAGE_DIGEST,
    output:
        directory("<results>/policies/{run}"),
    log:
        "<results>/logs/export_policy-{run}.log",
    benchmark:
        "<results>/benchmarks/export_policy-{run}.tsv"
    resources:
        mem_mb=NEEDS["mem_mb"],
        runtime=30,
    params:
        depends=run_digest,
        folder=lambda wildcards, input: str(Path(input[0]).parent),
    shell:
        "kevin --log {log:q} export-policy --run-dir {params.folder:q} --out {output:q}"


rule measure_gain:
    """What training gained on held-out tasks, with its interval."""
    input:
        scores=SCORES,
        trainings=TRAININGS,
        image=IMAGE_DIGEST,
    output:
        csv=report("<results>/tables/rl_gain.csv", **REPORTED),
        md="<results>/tables/rl_gain.md",
        tex="<results>/tables/rl_gain.tex",
    log:
        "<results>/logs/measure_gain.log",
    benchmark:
        "<results>/benchmarks/measure_gain.tsv"
    resources:
        mem_mb=2000,
        runtime=4,
    params:
        config=CONFIG,
        depends=report_digest,
        code=REPORT_CODE,
        scores=lambda wildcards, input: repeat("--scores", input.scores),
        summaries=lambda wildcards, input: summaries(input.trainings),
    shell:
        "kevin --log {log:q} rl-gain --config {params.config:q} {params.scores} {params.summaries} --out {output.csv:q}"


rule time_training:
    """Where the time of a training step went."""
    input:
        runs=expand("<results>/train/{run}/summary.json", run=SHOWN_RUNS),
        image=IMAGE_DIGEST,
    output:
        csv=report("<results>/tables/step_time.csv", **REPORTED),
        md="<results>/tables/step_time.md",
        tex="<results>/tables/step_time.tex",
    log:
        "<results>/logs/time_training.log",
    benchmark:
        "<results>/benchmarks/time_training.tsv"
    resources:
        mem_mb=2000,
        runtime=4,
    params:
        config=CONFIG,
        depends=report_digest,
        code=REPORT_CODE,
        runs=lambda wildcards, input: repeat(
            "--run-dir", [Path(run).parent for run in input.runs]
        ),
    shell:
        "kevin --log {log:q} step-time --config {params.config:q} {params.runs} --out {output.csv:q}"


rule draw_training_figure:
    """One figure of the training runs that the report compares, or of all runs for the ablations."""
    input:
        runs=lambda wildcards: expand(
            "<results>/train/{run}/summary.json", run=drawn_runs(wildcards)
        ),
        base=OWN_BASE,
        image=IMAGE_DIGEST,
    output:
        report("<results>/figures/{training_figure}.png", **REPORTED),
        "<results>/figures/{training_figure}.pdf",
        "<results>/figures/{training_figure}.csv",
    log:
        "<results>/logs/draw_training_figure-{training_figure}.log",
    benchmark:
        "<results>/benchmarks/draw_training_figure-{training_figure}.tsv"
    resources:
        mem_mb=2000,
        runtime=4,
    params:
        config=CONFIG,
        depends=report_digest,
        code=REPORT_CODE,
        runs=lambda wildcards, input: repeat(
            "--run-dir", [Path(run).parent for run in input.runs]
        ),
        summaries=lambda wildcards, input: summaries([*input.base, *input.runs]),
        folder=lambda wildcards, output: str(Path(output[0]).parent),
    shell:
        "kevin --log {log:q} training-figure {wildcards.training_figure:q} --config {params.config:q} {params.runs}"
        " {params.summaries} --out-dir {params.folder:q}"
