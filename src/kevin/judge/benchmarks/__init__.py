"""Measurements of the judge itself and of PyTorch's baselines, as files that people share."""
