"""`kevin field`: the systems of the field as rows of one table."""

from __future__ import annotations

from kevin.cli.options import ConfigOption, ManyTurnsOption, OutOption, SummariesOption, TasksOption, report_config


def field(
    turns: ManyTurnsOption,
    tasks: TasksOption,
    out: OutOption,
    summaries: SummariesOption = None,
    config: ConfigOption = None,
) -> None:
    """Compare the systems of the field at equal judged kernels: one table as CSV (config/field.yaml, docs/field.md)."""
    study = report_config(config)
    from kevin.report.field import make_field_table

    make_field_table(turns or [], tasks, out, study=study, summaries=summaries or [])
