"""Kernels for any sequence of operators, in one stage or several: a gather for each main operator, the rest fused."""
