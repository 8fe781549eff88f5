"""Partitioning for engines built ahead of time: few regions, with cheap borders.

`problem` states the partitioning problem and its cost in integers; `local_search` and `min_cut` solve it. The other
modules connect it to graphs: `graph_problem` and `partitioner` for the partitioner, `strategy` with its helpers for the
strategy, and `shape_cones` for the pass that copies shape arithmetic to the regions that read it.
"""
