"""Explaining a plan: the reasons for every decision, and what would bring a node to a backend, tried on the plan."""
