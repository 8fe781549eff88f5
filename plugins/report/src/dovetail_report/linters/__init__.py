"""Findings about a result: what is costly or unusual in it, why, and what to do about it."""
