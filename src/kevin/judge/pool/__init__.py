"""Many kernels at once: workers on this machine or on a cluster's nodes."""
