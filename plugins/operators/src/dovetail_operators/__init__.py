"""Operators defined once, in YAML: their signatures, checks, and what follows from them."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def before_opening(registry):
    """Let checks and inference know the operators of installed files."""
    from dovetail_operators.opening import register_schemas

    register_schemas(registry)


@hookimpl
def opened(model, registry):
    """Give the model the decompositions of its operators."""
    from dovetail_operators.opening import add_functions

    add_functions(model, registry)
