"""One node or one region of a result as a separate model, with the inputs that it has on the data."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.compiler import Driver
from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.plugin import TemporaryFolder
from dovetail.text import did_you_mean, pluralize
from dovetail_onnx.files.writing import replacing_file
from dovetail_runtime.data.batches import as_given, batches

from dovetail_verify.reducing.checks import write_arrays
from dovetail_verify.reducing.parts import ModelParts
from dovetail_verify.reducing.recording import give_types, record, temporary_file

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Plan

FILES = ("model.onnx", "inputs.npz", "outputs.npz")


def save_part(
    original: Model,
    plan: Plan,
    data: object,
    ctx: Context,
    folder: Path,
    *,
    node: str = "",
    region: int | None = None,
) -> str:
    """Write one node, or one region, of the normalized source model, with its inputs and outputs on the first batch.

    Compiled for the same request, the written model has the same problem in the same place, without the rest.

    Args:
        original: The model that was compiled.
        plan: The plan of the result.
        data: See `dovetail_runtime.data.sources.read_data`.
        ctx: A context of the request of the plan, with its plugins.
        folder: Receives `model.onnx`, `inputs.npz`, and `outputs.npz` with what the host computes.
        node: Name of the node, or of a value that it computes.
        region: Number of the region, if not a node.

    Returns:
        A one-line summary.

    Raises:
        DovetailError: There is no such node or region, the host does not run the model, or the folder holds something
            else.
    """
    if folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - set(FILES)):
        raise DovetailError(f"{folder} holds other files", "name another folder with -o")
    assert ctx.plugins is not None, "the context of a command has plugins"
    ctx.load_backends()
    prepared = Driver(original, ctx).prepare().clone()
    _, prepared = as_given(original, data, prepared)
    names = _names(plan, node, region)
    feeds = next((feeds for feeds, _ in islice(batches(original, data), 1)), None)
    if feeds is None:
        raise DovetailError("the data holds no batch", "give at least one sample")
    with TemporaryFolder("part") as beside, temporary_file(beside) as file:
        recorded = record(prepared, feeds, file, ctx.plugins)
        give_types(prepared.graph, recorded)
        parts = ModelParts(prepared, feeds, recorded)
        kept = [index for index, one in enumerate(parts.nodes) if name_of(one) in names]
        part = parts.part(kept) if kept else None
        if part is None:
            raise DovetailError(
                f"{node or f'region {region}'} cannot be written alone: it is in a body, or an input is no array",
                "name the node that holds the body",
            )
        outputs = {name_of(v): a for v in part.model.graph.outputs if (a := recorded.get(name_of(v))) is not None}
        part.model.save(folder / FILES[0])
        for name, arrays in zip(FILES[1:], (part.feeds, outputs), strict=True):
            with replacing_file(folder / name) as written:
                write_arrays(written, arrays)
    return f"{pluralize(len(kept), 'node')} with {pluralize(len(part.feeds), 'input')}: {folder / FILES[0]}"


def _names(plan: Plan, node: str, region: int | None) -> set[str]:
    """Return the names of the nodes to write.

    Raises:
        DovetailError: There is no such node or region.
    """
    if region is None:
        known = [name for one in plan.nodes for name in (one.name, one.output)]
        try:
            return {plan.named(node).name}
        except DovetailError as error:
            raise DovetailError(f"{error.message}{did_you_mean(node, known)}", error.hint) from None
    names = {one.name for one in plan.nodes if one.region == region}
    if not names:
        numbers = sorted({one.region for one in plan.nodes if one.region is not None})
        known_numbers = f"0 to {numbers[-1]}" if numbers else "none"
        raise DovetailError(f"the plan has no region {region}", f"regions: {known_numbers}")
    return names
