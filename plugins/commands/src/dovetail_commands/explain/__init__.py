"""Explanation of plans: the reason for every decision, and tested remedies that bring nodes to a backend."""
