"""Fusions: rewrites that replace a group of nodes that exporters write by one ONNX operator, for backends that have it.

A backend file names them under `prepare:`; `dovetail_placement.preparing` applies them to nodes that it is
offered.
"""
