"""From turns to scores, tables, figures and the report page. Reads files, writes files, never judges anything.

One function a command, plain paths in and paths out (all keyword arguments after ``*``)::

    kevin.report.scores.score_rollouts(turns: Path, tasks: Path, out: Path, *, study: Study,
                                       policy: str, split: str) -> Path
    kevin.report.tables.make_table(name: str, scores: Sequence[Path], out: Path, *, study: Study,
                                   baselines: Path | None = None, summaries: Sequence[Path] = ()) -> Path
        name: one of kevin.report.tables.TABLES ("level1", "level2", "serial_parallel", "turns", "mended",
        "pass_at_k", "tasks")
    kevin.report.figures.make_figure(name: str, out_dir: Path, *, study: Study, scores: Sequence[Path] = (),
                                     turns: Sequence[Path] = (), summaries: Sequence[Path] = (),
                                     baselines: Path | None = None, store: Path | None = None,
                                     tasks: Path | None = None) -> list[Path]
        name: one of kevin.report.figures.FIGURES; writes <name>.png, .pdf, .csv. All read ``scores``, except
        "layernorm_case_study" (``turns``); "roofline" needs ``store``, the verdict store.
    kevin.report.training_figures.make_training_figure(name: str, out_dir: Path, runs: Sequence[Path], *,
                                                       study: Study, summaries: Sequence[Path] = ()) -> list[Path]
        name: one of kevin.report.training_figures.TRAINING_FIGURES; ``runs``: folders with metrics.jsonl and turns/
    kevin.report.html.make_report(out: Path, *, study: Study, tables: Sequence[Path], figures: Sequence[Path],
                                  scores: Sequence[Path], turns: Sequence[Path], tasks: Path,
                                  baselines: Path | None = None, summaries: Sequence[Path] = ()) -> Path
        figures: the .png files; their .pdf and .csv siblings are picked up where they exist
    kevin.report.summary.summary_text(study: Study) -> str
        a few lines for the terminal, read from the written tables

``turns`` files are named ``<policy>-<split>/turns.parquet``; a policy of the name ``ceiling`` holds the kernel writer's
best-first search, one kernel a trajectory. ``summaries`` are the summary.json of trainings: where a time budget cut
one, everything that is made of it says so. Importing this package loads nothing heavy.

Left out, never counted as 0: a turn without a verdict (the harness failed), a trajectory without any verdict, a task
without any such trajectory. Tables say how many tasks, trajectories and turns stand behind every number.
"""
