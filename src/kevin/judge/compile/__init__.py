"""From a kernel's source to what a cell can load."""
