"""Reduction of failing models: the smallest part that still fails, with the inputs that it fails on."""
