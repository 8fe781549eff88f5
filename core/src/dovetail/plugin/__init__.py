"""The one import that a plugin needs: hooks, the registry, and what plugins implement. See docs/plugins.md.

Names are imported on first use, as `__init__.pyi` lists them, and none of them imports onnx.
"""

from dovetail.lazy_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
