"""The study's vocabulary: frozen data, configuration, prompts and rewards. Nothing here imports torch."""
