"""Check versions: of the file format, and of the domains that a model and its functions import."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail_onnx.source.problems import Problems

if TYPE_CHECKING:
    import onnx


def check_versions(proto: onnx.ModelProto, problems: Problems) -> None:
    """Check the IR version, and the imports of the model and of every function."""
    import onnx

    if proto.ir_version < 1:
        problems.add("the file states no IR version")
    elif proto.ir_version > onnx.IR_VERSION:
        problems.add(
            f"IR version {proto.ir_version} is newer than onnx {onnx.__version__} knows ({onnx.IR_VERSION})",
            "upgrade the package onnx, or export for an older version",
        )
    check_imports(proto.opset_import, "the model", problems)
    for function in proto.functions:
        check_imports(function.opset_import, f"function '{function.name}'", problems)


def check_imports(imports: Iterable[onnx.OperatorSetIdProto], what: str, problems: Problems) -> None:
    """Check that each domain is imported once, in a version that the installed onnx knows."""
    import onnx

    newest = onnx.defs.C.schema_version_map()
    seen: dict[str, int] = {}
    for entry in imports:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        label = f"opset {entry.version}" + (f" of domain '{domain}'" if domain else "")
        if not 1 <= entry.version < 1 << 31:
            problems.add(f"{what} imports {label}, which is not a valid version")
        elif domain in newest and entry.version > newest[domain][1]:
            problems.add(
                f"{what} imports {label}; onnx {onnx.__version__} knows versions up to {newest[domain][1]}",
                "upgrade the package onnx, or export for an older opset",
            )
        if seen.setdefault(domain, entry.version) != entry.version:
            problems.add(f"{what} imports domain '{domain}' twice, in versions {seen[domain]} and {entry.version}")


def imports_of(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Return the version of each imported domain; the default domain is `""`."""
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in imports}
