"""Paired rounds of kernel and eager reference, and when they are enough."""
