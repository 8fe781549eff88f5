"""Findings about a result: costly or unusual parts of it, the reasons, and what to do about them."""
