"""The study's figures. Each is made of a data frame that is written beside it: the CSV is exactly what was plotted.

`kevin.report.catalogue` names them all.
"""
