"""Tasks in KernelBench's module format: the own ones, KernelBench's, a user's. Torch is imported lazily."""
