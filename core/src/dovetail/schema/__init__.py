"""Backend files: loading, and what they say about a node."""
