"""Passes that bring a model to one normal form."""
