"""Compare `gpu_fp16.yaml` with ONNX Runtime's list of CUDA kernels.

    python check_kernels.py OperatorKernels.md [gpu_fp16.yaml]

The list is docs/OperatorKernels.md of an ONNX Runtime release. One line per operator of which the file takes other
float types than the newest version of its kernel does; the exit code is 1 if there is any.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from dovetail_schemas import FileBackend, load_backend

ROOT = Path(__file__).parents[3]
FILE = ROOT / "backends" / "gpu_fp16" / "src" / "dovetail_gpu_fp16" / "gpu_fp16.yaml"
POLICIES = ROOT / "schemas" / "src" / "dovetail_schemas" / "policies"
SECTION = "## Operators implemented by CUDAExecutionProvider"
FLOATS = {"tensor(float16)": "float16", "tensor(float)": "float32", "tensor(double)": "float64"}
# Accepted without a kernel: ONNX Runtime computes the function body or folds the node.
EXPANDED = frozenset(
    re.findall(
        r"\w+",
        """CastLike CenterCropPad Constant GroupNormalization Mish NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss
        Swish""",
    )
)
# Left to the host although there are kernels: no conversion of a sequence exists, and the rest is older than opset 13.
NOT_TAKEN = frozenset(
    re.findall(
        r"\w+",
        """Affine ConcatFromSequence Crop DynamicSlice ImageScaler MemcpyFromHost MemcpyToHost ParametricSoftplus
        ScaledTanh Scatter SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength
        SimplifiedLayerNormalization Upsample""",
    )
)
_PARAMETER = re.compile(r"\*\*\w+\*\* = ([^<|]+)")


def main() -> int:
    """Print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    options = parser.parse_args()
    policies = lambda kind, name: POLICIES / f"{name}.yaml" if kind == "policy" else None  # noqa: E731
    found = differences(kernels(options.list.read_text()), load_backend(options.file, policies))
    print("\n".join(found) or "nothing differs")
    return int(bool(found))


def kernels(text: str) -> dict[str, frozenset[str]]:
    """Return the float types of the newest CUDA kernel of every default-domain operator, for its widest parameter."""
    section = text.partition(SECTION)[2].partition("*com.microsoft*")[0]
    found = {}
    for line in section.splitlines():
        name, _, rest = line.removeprefix("|").partition("|")
        if line.startswith("|") and re.fullmatch(r"[A-Z]\w+", name):
            parameters = [types.strip().split(", ") for types in _PARAMETER.findall(rest)]
            types = [frozenset(FLOATS[text] for text in part if text in FLOATS) for part in parameters]
            found[name] = max(types, key=len, default=frozenset())
    return found


def differences(listed: dict[str, frozenset[str]], backend: FileBackend) -> list[str]:
    """Return one line per operator on which file and kernel list disagree."""
    taken = {op_type for domain, op_type in backend.listed() if not domain and backend.rule("", op_type).status == "ok"}
    lines = [f"{name}: there is a kernel, and the file does not take it" for name in listed.keys() - taken - NOT_TAKEN]
    lines += [f"{name}: the file takes it, and there is no kernel" for name in taken - listed.keys() - EXPANDED]
    for name in taken & listed.keys():
        ours = _floats(backend, name)
        if ours and listed[name] and ours != listed[name]:
            lines.append(f"{name}: {_text(ours)} in the file, kernels for {_text(listed[name])}")
    return sorted(lines)


def _floats(backend: FileBackend, name: str) -> set[str]:
    said = backend.rule("", name).types
    groups = [said.common or (), *said.ports.values()] if said is not None else []
    return {dtype for group in groups for spec in group for dtype in spec.dtype if dtype in FLOATS.values()}


def _text(types) -> str:
    return ", ".join(sorted(types, key=lambda name: int(name[5:])))


if __name__ == "__main__":
    raise SystemExit(main())
