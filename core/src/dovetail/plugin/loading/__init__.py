"""What finds, loads and calls plugins: registry, isolation of failures, files by suffix. Plugins see `dovetail.plugin`.

Names are imported on first use, as `__init__.pyi` lists them.
"""

from dovetail.lazy_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
