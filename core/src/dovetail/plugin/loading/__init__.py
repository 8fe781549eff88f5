"""Finding, loading and calling plugins: registry, isolation, files by suffix. Plugins import `dovetail.plugin` instead.

Names are imported on first use, as `__init__.pyi` lists them.
"""

from dovetail.lazy_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
