"""Kernels for any sequence of operators: a stage for each main operator, with the element-wise ones after it."""
