"""Backend files, policies and operator facts, as YAML: data without code."""
