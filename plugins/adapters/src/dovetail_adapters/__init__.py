"""Compiled models behind interfaces that programs use: ONNX Runtime's session, `onnx.backend`, `torch.compile`."""
