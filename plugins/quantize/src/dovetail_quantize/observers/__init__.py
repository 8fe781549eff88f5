"""Observers: what collects numbers of values and turns them into parameters."""
