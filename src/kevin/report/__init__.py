"""From turns to scores, tables, figures and the report page. Reads files, writes files, never judges anything.

`kevin.report.catalogue` names every table and figure, with what it is made of (`make_table`, `make_figure`); what is
said of each stands in ``captions.yaml``. `kevin.report.scores` makes scores of turns, `kevin.report.html` the page,
`kevin.report.summary` the lines for the terminal, `kevin.report.published` the folder for others.

``turns`` files are named ``<policy>-<split>/turns.parquet``; a policy of the name ``ceiling`` holds the kernel writer's
best-first search, one kernel a trajectory. Importing this package loads nothing heavy.

Left out, never counted as 0: a turn without a verdict (the harness failed), a trajectory without any verdict, a task
without any such trajectory. Tables say how many tasks, trajectories and turns stand behind every number.
"""
