"""Compiled models behind interfaces that programs use already: ONNX Runtime's session, `onnx.backend`, `torch.compile`."""
