"""`dovetail doctor`: what this machine has and lacks, what a model needs, and what to type first."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import PlainCommand, broken_lines, existing, plugins_of, print_json, say
from dovetail.errors import DovetailError
from dovetail.installed import version_of
from dovetail.planning import HOST, operator_name
from dovetail.text import pluralize

from dovetail_commands.installation import installation_problems

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Pass, PassResult
    from dovetail.plugin import PluginSet
    from onnx_ir import TensorProtocol

    from dovetail_commands.backends import BackendInfo

_FLAGS = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_vnni": "VNNI", "avx_vnni": "AVX-VNNI",
          "avx512_bf16": "AVX512-BF16", "amx_bf16": "AMX-BF16", "amx_int8": "AMX-INT8", "asimd": "NEON",
          "asimddp": "dot products", "bf16": "BF16", "i8mm": "I8MM"}  # fmt: skip
_PACKAGES = ("dovetail-core", "onnx", "onnx-ir", "onnxruntime", "onnxruntime-gpu", "openvino", "numpy", "tensorrt")
_INSTALL = re.compile(r"pip install ('[^']+'|[\w.\[\]-]+)")
_SMALL = 2 << 30  # bytes that fit a file of protobuf


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("model", nargs="?", type=Path, metavar="MODEL", help="a model to examine, too")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from dovetail import api

    from dovetail_commands.backends import backends
    from dovetail_commands.terminal import table

    path, plugins = existing(args.model), plugins_of(args)
    found = backends(plugins)
    machine = examine_machine(found)
    model: dict[str, Any] = {}
    if path is not None:
        opened = api.open(path, plugins)
        model = examine_model(opened, path, plugins)
        model["placed"] = {} if model["nowhere"] else _placed(opened, _fast_backends(machine), plugins)
    if args.json:
        print_json({"machine": machine, "model": model})
        return 0
    say(f"processor  {machine['processor']}, {pluralize(machine['cores'], 'core')}: {', '.join(machine['features'])}")
    say(f"graphics   {', '.join(machine['gpus']) or 'no NVIDIA driver'}")
    say("versions   " + ", ".join(f"{name} {number}" for name, number in machine["versions"].items()), "")
    table([{"backend": row["backend"], "runs here on": row["engine"] or "nothing", "lacks": row["lacks"]}
           for row in machine["backends"]])  # fmt: skip
    say(*(f"to install  {line}" for line in machine["install"]))
    say(*(f"to repair  {one['text']}: {one['command']}" for one in machine["installation"]))
    print("\n".join(broken_lines(plugins)), end="")
    if model:
        say("", *_model_lines(model))
    if not model.get("nowhere"):
        if model and not any(model["placed"].values()):
            tried = ", ".join(model["placed"]) or "a fast backend, as none is ready"
            say(f"placed     no node, by {tried}: `dovetail plan {shlex.quote(str(path))} --backend NAME` says why")
        say("", f"type first  {first_command(model, path)}")
    return 0


def examine_machine(found: list[BackendInfo]) -> dict[str, Any]:
    """Return what this machine has: processor, features, GPUs, versions, and for each backend its engine or need."""
    rows: list[dict[str, str]] = []
    install: dict[str, None] = {}
    for info in found:
        ready = [(name, why) for name, ok, why in info.engines if ok]
        first = info.engines[0] if info.engines else ("", False, info.error or "no engine is named")
        lacks = "" if first[1] else first[2]
        rows.append({"backend": info.name, "engine": ready[0][0] if ready else "", "lacks": lacks})
        for line in _INSTALL.findall(lacks):
            install[f"pip install {line}"] = None
    name, features = _processor()
    return {
        "processor": name, "cores": os.cpu_count() or 1, "features": features, "gpus": _gpus(),
        "versions": {"python": platform.python_version(), **_versions()}, "backends": rows, "install": list(install),
        "installation": [asdict(problem) for problem in installation_problems()],
    }  # fmt: skip


def _processor() -> tuple[str, list[str]]:
    """Return the processor's name and those of its features that matter for nets."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine(), []
    name = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*: (.*)$", text, re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    return name[1].strip() if name else platform.machine(), [title for flag, title in _FLAGS.items() if flag in known]


def _gpus() -> list[str]:
    """Return the NVIDIA GPUs that the driver lists."""
    found = []
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        model = re.search(r"^Model:\s*(.*)$", file.read_text(errors="replace"), re.MULTILINE)
        found.append(model[1].strip() if model else file.parent.name)
    return found


def _versions() -> dict[str, str]:
    return {name: version for name in _PACKAGES if (version := version_of(name))}


def examine_model(model: Model, path: Path, plugins: PluginSet | None = None) -> dict[str, Any]:
    """Return what a model needs: opset, nodes and operators, open extents, weights, and operators that nothing runs."""
    from dovetail_onnx.frontend import fixing_option, open_inputs
    from onnx_ir import ExternalTensor

    operators = Counter(operator_name(node.domain, node.op_type) for node in model.nodes())
    weights = list(_weights(model))
    inputs = open_inputs(model)
    fixing, complete = fixing_option(inputs) if inputs else ("", False)
    return {
        "opsets": dict(model.ir.opset_imports), "nodes": operators.total(), "operators": dict(operators.most_common()),
        "nowhere": _unrunnable(model, plugins),
        "weights": len(weights), "bytes": sum(tensor.nbytes for tensor in weights),
        "external": sorted({str(tensor.location) for tensor in weights if isinstance(tensor, ExternalTensor)}),
        "open": [value.name or "" for value in inputs], "fixing": fixing if complete else "",
        "file": path.name, "file_bytes": path.stat().st_size if path.is_file() else 0,
    }  # fmt: skip


def _weights(model: Model) -> Iterator[TensorProtocol]:
    """Yield the weights of a model: initializers, also of bodies, and the tensors of nodes that only hold one."""
    from onnx_ir.convenience import get_const_tensor

    graphs = {id(graph): graph for graph in (model.graph, *(graph for _, graph in model.graphs()))}
    values = [value for graph in graphs.values() for value in graph.initializers.values()]
    values += [output for node in model.nodes() if not node.inputs for output in node.outputs]
    yield from (tensor for value in values if (tensor := get_const_tensor(value)) is not None)


def _unrunnable(model: Model, plugins: PluginSet | None) -> dict[str, int]:
    """Return the operators that no engine here runs, each with the number of its nodes."""
    from dovetail import api
    from dovetail.passes import Instrumentation
    from dovetail.plugin import EngineError

    prepared: list[Model] = [model]

    def passed(_: Pass, now: Model, __: PassResult) -> None:
        prepared[0] = now  # the names in an error are those of the model that was prepared for placing

    try:
        api.plan(model, HOST, plugins=plugins, instrumentation=Instrumentation(passed=passed))
    except EngineError as error:
        lost = set(error.nodes)
        found = (operator_name(node.domain, node.op_type) for node in prepared[0].nodes() if node.name in lost)
        return dict(Counter(found).most_common())
    return {}


def _model_lines(model: dict[str, Any]) -> list[str]:
    top = ", ".join(f"{name} {number}" for name, number in list(model["operators"].items())[:6])
    opsets = ", ".join(f"{domain or 'ai.onnx'} {number}" for domain, number in model["opsets"].items())
    lines = [f"model      {model['file']}: {pluralize(model['nodes'], 'node')} ({top}), opset {opsets}"]
    size = f"weights    {pluralize(model['weights'], 'tensor')}, {model['bytes'] / 1e6:.3g} MB"
    lines.append(size + (f", in {', '.join(model['external'][:3])}" if model["external"] else ", in the file itself"))
    if model["bytes"] > _SMALL:
        lines.append("           more than 2 GB: the engines are not tried by default; --try-engines tries them")
    if model["open"]:
        needed = model["fixing"] or "--fix-shape"
        lines.append(f"open       extents of {', '.join(model['open'][:4])}; backends with fixed shapes need {needed}")
    if model["nowhere"]:
        named = ", ".join(f"{name} {number}" for name, number in list(model["nowhere"].items())[:6])
        lines.append(f"nowhere    {named}: no engine here runs them; install a backend that does, or cut them out")
    return lines


def first_command(model: dict[str, Any], path: Path | None) -> str:
    """Return the command to begin with, for the backend that this machine runs best and that takes much of the model.

    That is the one that would have most nodes of those that were tried, or the host if none would have any.
    """
    if path is None:
        return "dovetail demo"
    placed: dict[str, int] = model["placed"]
    backend = max(placed, key=lambda name: placed[name], default=HOST)
    backend = backend if placed.get(backend) else HOST
    return f"dovetail compile {shlex.quote(str(path))} --backend {backend} --data FILE.npz -o out"


def _fast_backends(machine: dict[str, Any]) -> list[str]:
    """Return the backends that this machine runs, those first for which it has instructions or a GPU."""
    features, ready = set(machine["features"]), {row["backend"] for row in machine["backends"] if not row["lacks"]}
    wanted = []
    if machine["gpus"]:
        wanted.append("gpu-fp16")
    if features & {"AMX-BF16", "AVX512-BF16", "BF16"}:
        wanted.append("cpu-bf16")
    if features & {"VNNI", "AVX-VNNI", "AMX-INT8", "I8MM"}:
        wanted.append("cpu-int8")
    return [name for name in dict.fromkeys((*wanted, "cpu-bf16", "cpu-int8")) if name in ready]


def _placed(model: Model, names: list[str], plugins: PluginSet | None) -> dict[str, int]:
    """Return how many nodes of a model each backend would have alone, up to the first that would have half of them."""
    from dovetail import api

    found: dict[str, int] = {}
    for name in names:
        try:
            plan = api.plan(model, name, plugins=plugins)
        except DovetailError:
            found[name] = 0
            continue
        found[name] = sum(node.backend == name for node in plan.nodes)
        if 2 * found[name] >= len(plan.nodes):
            break
    return found


DOCTOR = PlainCommand(add_arguments, run)
