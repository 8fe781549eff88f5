"""ONNX Runtime's own operators, written in standard ONNX. Names are imported on first use: see `__init__.pyi`."""

from dovetail.lazy_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
