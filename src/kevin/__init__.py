"""Kevin: a reproducible study of multi-turn RL for generating GPU kernels.

Data flows one way: ``core`` <- ``tasks`` <- ``judge`` <- ``rollout`` <- ``train``, and ``core`` <- ``report``.
"""

__version__ = "0.1.0"
