"""What compiles, and what calls plugins: driver, options, front ends, stores. `__init__.pyi` lists the names."""

from dovetail.lazy_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
