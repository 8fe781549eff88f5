"""Running engines on a GPU: the driver, the engine of a region, and a session on it."""
