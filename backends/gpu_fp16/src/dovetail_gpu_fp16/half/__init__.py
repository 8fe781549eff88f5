"""Emulation of devices that sum in float16, operator by operator, as ONNX Runtime's WebGPU provider computes them."""
