"""Execution of engines on a GPU: the driver, the engine of a region, and its session."""
