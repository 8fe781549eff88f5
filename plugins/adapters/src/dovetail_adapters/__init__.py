"""Compiled models behind interfaces that programs have: ONNX Runtime's session, `onnx.backend`, `torch.compile`."""
