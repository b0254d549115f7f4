"""The walls around a candidate: isolation by the system, processes, the handle on one of them, shared memory."""
