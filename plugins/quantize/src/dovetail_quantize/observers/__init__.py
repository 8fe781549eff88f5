"""Observers: statistics of a value's numbers, turned into quantization parameters."""
