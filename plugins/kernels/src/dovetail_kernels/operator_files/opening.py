"""What makes the operators of files known: schemas in onnx, and decompositions as functions of a model."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from dovetail_kernels.operator_files.library import OperatorLibrary, library_of
from dovetail_kernels.operator_files.schemas import attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import Registry


def register(schemas: Iterable[onnx.defs.OpSchema]) -> None:
    """Register schemas with onnx, for its checker and shape inference.

    onnx has one table per process; a schema that differs from the registered one replaces it.
    """
    import onnx
    from dovetail_onnx.signatures import find_signature

    schemas = list(schemas)
    if not all(onnx.defs.has(schema.name, schema.since_version, schema.domain) for schema in schemas):
        # onnx's reference evaluator copies the schemas on import, and fails if two domains share an operator name.
        importlib.import_module("onnx.reference.op_run")
    changed = False
    for schema in schemas:
        if onnx.defs.has(schema.name, schema.since_version, schema.domain):
            known = onnx.defs.get_schema(schema.name, schema.since_version, schema.domain)
            if known.doc == schema.doc and _ports(known) == _ports(schema):
                continue
            onnx.defs.deregister_schema(schema.name, known.since_version, schema.domain)
        onnx.defs.register_schema(schema)
        changed = True
    if changed:
        find_signature.cache_clear()


def add_functions(model: Model, registry: Registry) -> None:
    """Add the decompositions of the model's operators as model-local functions, so that any engine can run it."""
    library = library_of(registry)
    lazy = model.lazy if model.untouched else None
    nodes = model.nodes() if lazy is None else lazy.nodes()
    used = {(node.domain, node.op_type) for node in nodes} & library.definitions.keys()
    wanted = {key: function for key in sorted(used) if (function := library.definitions[key].function) is not None}
    if not wanted or lazy is None and all((*key, "") in model.ir.functions for key in wanted):
        return
    import onnx_ir as ir

    for node in model.nodes():
        _complete(node, library)
    functions, imports = model.ir.functions, model.ir.opset_imports
    for (domain, name), function in wanted.items():
        if (domain, name, "") in functions:
            continue  # a model may define its own
        made = functions[domain, name, ""] = ir.serde.deserialize_function(function)
        for node in made:
            _complete(node, library)
        for imported in function.opset_import:
            imports.setdefault(imported.domain, imported.version)
    model.touch()


def _complete(node: ir.Node, library: OperatorLibrary) -> None:
    """Write out attributes that a node leaves at their defaults: onnx's inliner would lose them."""
    import onnx_ir as ir

    definition = library.get(node.domain, node.op_type)
    for arg in definition.entry.attributes if definition is not None else ():
        if arg.has_default and arg.name not in node.attributes:
            node.attributes[arg.name] = ir.serde.deserialize_attribute(attribute_of(arg, arg.default))


def _ports(schema: onnx.defs.OpSchema) -> tuple[object, ...]:
    attributes = sorted(schema.attributes)
    return [port.name for port in schema.inputs], [port.name for port in schema.outputs], attributes
