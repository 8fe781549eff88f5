"""Kernels: what computes single operators, chosen by device, layout and element type."""
