"""Passes that place operators on backends."""
