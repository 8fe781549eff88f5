"""Regions for engines that are built ahead of time: few, whole, and with cheap borders.

`problem` states what is cut and what a cut costs, in integers; `levels`, `min_cut`, `swaps` and `cutting` solve it. The
others bring it to graphs: `partitioner` and `fused groups` for the partitioner, `strategy` and its helpers for the
strategy, and `shape_cones` for the pass that copies shape arithmetic to the regions that read it.
"""
