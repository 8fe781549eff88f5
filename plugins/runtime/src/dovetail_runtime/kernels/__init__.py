"""Kernels: implementations of single operators, selected by device, layout and element type."""
