"""Strategies: rules that claim nodes for a backend."""
