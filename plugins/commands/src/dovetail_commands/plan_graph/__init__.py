"""The graph of a result by its plan, for everything that draws or explains it."""
