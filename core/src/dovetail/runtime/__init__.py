"""Engines and the executor that runs a plan region by region."""
