"""Rollouts: m trajectories of n turns of a policy against the judge, shared by benchmark and training."""
