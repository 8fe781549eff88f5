"""Fusions: rewrites that replace what exporters write by one operator of ONNX, for backends that have it.

A backend file names them under `prepare:`; `dovetail_placement.preparing` applies them to nodes that it is
offered.
"""
