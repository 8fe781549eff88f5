"""Operators defined once, in YAML: signatures, checks, schemas, inference and decompositions."""
