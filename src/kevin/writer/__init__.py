"""The kernel writer: kernels of every quality for the study's own tasks, by plan."""
