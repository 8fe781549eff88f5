"""Optimization profiles: input extents of an engine, from the user or from data, propagated to its region."""
