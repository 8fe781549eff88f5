"""Consistency checks of an entry, and of a gradient with its operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dovetail.text import did_you_mean

from dovetail_kernels.operator_files.entries import KeyCandidates, OperatorArgument, OperatorEntry, OperatorFile

_LITERAL = "::"


def entry_problems(entry: OperatorEntry) -> list[str]:
    """Return contradictions between an entry and its signature, one line each."""
    return [f"{entry.where}: '{entry.name}': {problem}" for problem in _problems(entry)]


def gradient_problems(file: OperatorFile) -> list[str]:
    """Return contradictions between gradients and their operators, one line each."""
    found = []
    known = {**file.entries, **file.gradients}
    for entry in known.values():
        if entry.backward:
            gradient = file.gradients.get(entry.backward)
            if gradient is None and file.gradients:
                near = did_you_mean(entry.backward, file.gradients)
                found.append(f"{entry.where}: '{entry.name}': there is no backward_op '{entry.backward}'{near}")
            elif gradient is not None and gradient.forward is not None and gradient.forward.name != entry.name:
                found.append(
                    f"{entry.where}: '{entry.name}': its backward '{entry.backward}' ({gradient.where}) is that of "
                    f"'{gradient.forward.name}'"
                )
    for gradient in file.gradients.values():
        forward = gradient.forward
        if forward is None:
            continue
        where = f"{gradient.where}: '{gradient.name}'"
        operator = known.get(forward.name)
        if operator is not None:
            found += [f"{where}: {problem}" for problem in _differences(forward, operator)]
        elif file.entries:
            found.append(f"{where}: forward: there is no op '{forward.name}'{did_you_mean(forward.name, known)}")
        found += [f"{where}: {problem}" for problem in _gradient_limits(gradient, forward)]
    return found


def _problems(entry: OperatorEntry) -> Iterator[str]:
    inputs, attributes = ({arg.name for arg in part} for part in (entry.inputs, entry.attributes))
    outputs = {output.name for output in entry.outputs}
    args = inputs | attributes
    ways = [entry.kernel, entry.composite, entry.body, entry.invoke]
    if not any(ways):
        yield "it has neither kernel, composite nor invoke, so nothing executes it"
    if entry.invoke and (entry.kernel or entry.infer_meta):
        yield "invoke: stands for infer_meta and kernel; leave these out"
    if entry.kernel and not entry.infer_meta:
        yield "it has a kernel and no infer_meta, so nothing says how its results look"
    yield from _unknown("optional", entry.optional, inputs | outputs)
    yield from _unknown("intermediate", entry.intermediate, outputs)
    yield from _unknown("no_need_buffer", entry.no_need_buffer, inputs)
    yield from _unknown("skip_transform", entry.skip_transform, inputs)
    yield from _unknown("support_trans_dtype", entry.support_trans_dtype, inputs)
    for key, pairs in (("inplace", entry.inplace), ("view", entry.view)):
        yield from _unknown(key, (pair[0] for pair in pairs), inputs)
        yield from _unknown(key, (pair[1] for pair in pairs), outputs)
    if entry.infer_meta:
        yield from _unknown("infer_meta param", entry.infer_meta.call.arguments, args)
    if entry.kernel:
        yield from _unknown("kernel param", entry.kernel.parameters, args)
        for key in ("data_type", "backend", "layout"):
            yield from _unknown(key, _arguments(getattr(entry.kernel, key)), args)
        if entry.kernel.force_backend:
            yield from _unknown("force_backend", (entry.kernel.force_backend,), args)
    # An invoked or composite call may pass constants, but not names that are no arguments.
    if entry.composite:
        given = args | outputs | {f"{name}_grad" for name in (*args, *outputs)}
        yield from _unknown("composite", entry.composite.arguments, given)
    for output in entry.outputs:
        name = output.size.partition(".")[0].strip()
        if name.isidentifier() and name not in args and name not in outputs:
            yield f"the size '{output.size}' of '{output.name}' names no argument{did_you_mean(name, args)}"


def _unknown(key: str, names: Iterable[str], known: set[str]) -> Iterator[str]:
    for name in sorted(set(names) - known):
        yield f"{key}: there is no '{name}'{did_you_mean(name, known)}"


def _arguments(candidates: KeyCandidates) -> list[str]:
    names = (name for name in candidates.names if _LITERAL not in name)
    return [name.removeprefix("complex(").rstrip(") ").strip() for name in names]


def _differences(written: OperatorEntry, operator: OperatorEntry) -> Iterator[str]:
    """Yield the differences between the signature under `forward:` and that of the operator."""
    said, real = _signature(written), _signature(operator)
    for kind in said:
        if said[kind] != real[kind]:
            yield (
                f"forward: its {kind} are ({', '.join(said[kind])}), and those of '{operator.name}' ({operator.where}) "
                f"({', '.join(real[kind])})"
            )


def _signature(entry: OperatorEntry) -> dict[str, list[str]]:
    def written(args: Iterable[OperatorArgument]) -> list[str]:
        return [f"{arg.type} {arg.name}" for arg in args]

    return {
        "inputs": written(entry.inputs),
        "attributes": written(entry.attributes),
        "outputs": [output.type for output in entry.outputs],
    }


def _gradient_limits(gradient: OperatorEntry, forward: OperatorEntry) -> Iterator[str]:
    """Yield violations of Paddle's rules: gradients use inputs, outputs, their gradients, and defaulted attributes."""
    room = len(forward.inputs) + 2 * len(forward.outputs)
    if len(gradient.inputs) > room:
        yield f"it has {len(gradient.inputs)} inputs, and '{forward.name}' with its outputs and their gradients {room}"
    if len(gradient.outputs) > len(forward.inputs):
        yield f"it has {len(gradient.outputs)} outputs, and '{forward.name}' has {len(forward.inputs)} inputs"
    own = {arg.name for arg in forward.attributes}
    for arg in gradient.attributes:
        if arg.name not in own and not arg.has_default:
            yield f"attribute '{arg.name}' is not one of '{forward.name}', and has no default"
