"""The judge as a library: `Judge` in a Python program, and what `kevin serve` and `kevin judge --runs` are made of.

Whoever uses it gets a process that is left alone: references, compilers, torch and dask live in a process of the
judge's own (`engine`), which ends with the one that it works for.
"""
