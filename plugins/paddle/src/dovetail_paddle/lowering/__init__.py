"""Lowering of `pd_op` graphs to ONNX."""
