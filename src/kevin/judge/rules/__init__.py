"""What can be read off sources and off a profiler's list of kernels."""
