"""Measures what an engine computes, and writes that as a backend file: the command `dovetail probe`."""
