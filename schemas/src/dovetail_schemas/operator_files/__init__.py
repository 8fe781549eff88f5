"""Operators defined once, in YAML: their signatures, checks, and what follows from them."""
