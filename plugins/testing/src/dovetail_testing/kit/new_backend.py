"""Distributions for new backends, from templates or from the file of an installed backend."""

from __future__ import annotations

import re
import shutil
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail import __version__
from dovetail.errors import DovetailError, UsageError
from dovetail.installed import version_of
from dovetail.passes import BackendChoice
from dovetail.plugin import API_VERSION, TemporaryFolder
from dovetail.plugin.loading import load_chosen

if TYPE_CHECKING:
    from dovetail.plugin import Backend, PluginSet, Source


_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TOKEN = re.compile(r"@([a-z_]+)@")
_NEWEST = "22"
_OPERATORS = {
    "float": ("Add", "Conv", "Flatten", "Gemm", "MatMul", "MaxPool", "Mul", "Relu", "Reshape", "Sub", "Transpose"),
    "int8": ("Add", "Conv", "Flatten", "Gemm", "MaxPool", "Mul", "Relu", "Reshape", "Transpose"),
}
_NEEDED = ("dovetail-core", "dovetail-schemas", "dovetail-onnx", "dovetail-transforms", "dovetail-placement",
           "dovetail-precision", "dovetail-runtime", "dovetail-host")  # fmt: skip


def new_backend(
    name: str,
    folder: Path,
    plugins: PluginSet,
    *,
    int8: bool = False,
    engine: bool = False,
    emitter: bool = False,
    quantizes: bool = False,
    source: str = "",
) -> list[str]:
    """Write a distribution that can be installed and checked and passes its tests as it is.

    Args:
        name: Name of the backend.
        folder: The folder to create.
        plugins: The installed plugins; none of them may have a backend of this name.
        int8: Start with a file for integers.
        engine: Add an engine class.
        emitter: Add an emitter that compiles regions with a tool in a process of its own, and an engine for its
            programs.
        quantizes: The tool reads floats and scales, and quantizes by itself; adds an emitter and a file for integers.
        source: Start with the file of this installed backend.

    Returns:
        The paths of the files in the folder.

    Raises:
        UsageError: The name is malformed, or options exclude each other.
        DovetailError: The name is taken, the folder holds something, or the source is no backend with a file.
    """
    if not _NAME.fullmatch(name) or len(name) > 60:
        raise UsageError(f"{name[:80]!r} is no name for a backend", "use small letters, digits and '-', as in acme-npu")
    int8, emitter = int8 or quantizes, emitter or quantizes
    if source and quantizes:
        raise UsageError("--quantizes has a file of its own, and --from copies one", "leave one of them out")
    if source and int8:
        raise UsageError("--int8 and --from both say what the file begins with", "leave one of them out")
    if source and emitter:
        raise UsageError("--emitter has a file of its own, and --from copies one", "leave one of them out")
    table = plugins.registry.backend
    if name in table or table.is_clash(name):
        owner = f" by {table.entry(name).owner}" if name in table else ""
        raise DovetailError(f"the backend '{name}' is installed already{owner}", "choose another name")
    if folder.exists() and not folder.is_dir() or folder.is_dir() and any(folder.iterdir()):
        raise DovetailError(f"{folder} exists already", "name another folder with -o; nothing in it was changed")
    parts = "quantizing" if quantizes else "emitter" if emitter else "engine" if engine else ""
    files = (
        _copied(name, source, plugins, engine) if source else _from_template(name, "int8" if int8 else "float", parts)
    )
    texts = {**_common(name, parts, files.pop("operators"), files.pop("dependencies")), **files}
    _write(folder, texts)
    return sorted(texts)


def _from_template(name: str, kind: str, parts: str) -> dict[str, str]:
    emit = {
        "": "engines: [onnxruntime-cpu]",
        "engine": f"engines: [{name}-engine, reference]",
        "emitter": f"engines: [{name}-engine, onnxruntime-cpu], artifacts: [{name}-compiler]",
    }
    emit["quantizing"] = emit["emitter"]
    tokens = {**_tokens(name), "emit": emit[parts], "onnx": _onnx_version()}
    package = f"src/{tokens['package']}"
    dependencies = [*_NEEDED, *(["dovetail-quantize"] if kind == "int8" else [])]
    return {
        f"{package}/{tokens['module']}.backend.yaml": _filled(f"{kind}.yaml", tokens),
        f"{package}/conformance.yaml": _filled(f"{kind}_conformance.yaml", tokens),
        "operators": ", ".join(f'"{operator}"' for operator in _OPERATORS[kind]),
        "dependencies": "\n".join(dependencies),
    }


def _copied(name: str, source: str, plugins: PluginSet, engine: bool) -> dict[str, str]:
    """Return the file of an installed backend under the new name, with the files that it names and its lists.

    An engine of its own comes before those of the source.
    """
    registry = plugins.registry
    entry = registry.backend.entry(source)
    if not registry.backend.is_file(source):
        raise DovetailError(f"the backend '{source}' is a Python class, not a file", "begin with another backend")
    loaded = load_chosen(registry, BackendChoice(source))
    tokens = _tokens(name)
    package = f"src/{tokens['package']}"
    found: Source = registry.backend[source]
    text = _renamed(found.read_bytes().decode(), source, name)
    if engine:
        text = re.sub(r"(\bengines:\s*\[)", rf"\g<1>{name}-engine, ", text)
    files = {f"{package}/{tokens['module']}.backend.yaml": text}
    for beside in _files_beside(loaded, found):
        files[f"{package}/{beside.name}"] = beside.read_text(encoding="utf-8")
    lists = registry.conformance.get(source)
    conformance = lists.read_bytes().decode() if lists is not None else f'backend: {name}\nonnx: "{_onnx_version()}"\n'
    files[f"{package}/conformance.yaml"] = _renamed(conformance, source, name)
    operators = sorted(set(re.findall(r"\b[A-Z][A-Za-z0-9]+\b", conformance)) & _operator_names())
    needed = dict.fromkeys((*_NEEDED, "dovetail-quantize", entry.owner))
    files["operators"] = ", ".join(f'"{operator}"' for operator in operators)
    files["dependencies"] = "\n".join(needed)
    return files


def _renamed(text: str, source: str, name: str) -> str:
    """Change the name of the backend in a file; an editor's line with the path of the schema goes."""
    lines = [line for line in text.splitlines() if not line.startswith("# yaml-language-server")]
    lines = [f"backend: {name}" if line.startswith("backend:") else line for line in lines]
    head = f"# Begun as a copy of the file of {source}. `dovetail check` this file after each change.\n"
    return head + "\n".join(lines) + "\n"


def _files_beside(loaded: Backend, main: Source) -> list[Path]:
    """Return the files in the same folder that a backend was loaded from, variants' files included."""
    folder = Path(str(main)).parent
    text = main.read_bytes().decode()
    named = re.findall(r"\bfile:\s*([\w.\-]+)", text)
    paths = [folder / each for each in named] + [Path(str(file)) for file in loaded.files or ()]
    return sorted({path for path in paths if path.parent == folder and path.is_file() and path.name != main.name})


def _operator_names() -> frozenset[str]:
    import onnx

    return frozenset(schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain)


_CODE = {
    "": {},
    "engine": {"engine.py": ("engine.py", "the engine `{}-engine`")},
    "emitter": {
        "emitter.py": ("emitter.py", "the emitter `{}-compiler`, which compiles regions into programs"),
        "worker.py": ("worker.py", "calls your tools, in a process of its own"),
        "engine.py": ("program_engine.py", "the engine `{}-engine`, which runs the programs"),
    },
}
_CODE["quantizing"] = {
    **_CODE["emitter"],
    "emitter.py": ("quantizing_emitter.py", "the emitter `{}-compiler`, which compiles floats with the plan's scales"),
    "worker.py": ("quantizing_worker.py", "calls your tools, in a process of its own"),
}
"""Files of code by what is added, each with its template and its row in the README."""


def _common(name: str, parts: str, operators: str, dependencies: str) -> dict[str, str]:
    """Return the files that every distribution has, and those of its code, by path."""
    tokens = _tokens(name)
    range_ = _range()
    listed = [f'  "{each}{range_}",' for each in dependencies.splitlines()]
    listed += ['  "onnxruntime>=1.20",'] if parts else []
    registered = {"quantizing": "emitter"}.get(parts, parts)
    rows = "".join(f"| `{file}` | {about.format(name)} |\n" for file, (_, about) in _CODE[parts].items())
    tokens |= {"operators": operators, "dependencies": "\n".join(listed), "range": range_, "code_rows": rows}
    package = f"src/{tokens['package']}"
    init = _filled("__init__.py", tokens) + (_filled(f"{registered}_registration", tokens) if parts else "")
    files = {
        "pyproject.toml": _filled("pyproject.toml", tokens),
        "README.md": _filled("README.md", tokens),
        ".github/workflows/test.yml": _filled("test.yml", tokens),
        "tests/test_backend.py": _filled("test_backend.py", tokens),
        f"{package}/__init__.py": init,
    }
    code = {f"{package}/{file}": _filled(template, tokens) for file, (template, _) in _CODE[parts].items()}
    return files | code


def _tokens(name: str) -> dict[str, str]:
    module = name.replace("-", "_")
    return {
        "name": name,
        "module": module,
        "package": f"dovetail_{module}",
        "class": "".join(part.capitalize() for part in name.split("-")),
        "api": str(API_VERSION),
        "newest": _NEWEST,
        "variable": f"DOVETAIL_{module.upper()}",
    }


def _filled(template: str, tokens: dict[str, str]) -> str:
    """Fill in a template of the package; `@v4` and the like are left as they are."""
    text = resources.files(__package__).joinpath("templates", f"{template}.txt").read_text(encoding="utf-8")
    return _TOKEN.sub(lambda found: tokens[found[1]], text)


def _range() -> str:
    """Return the versions of Dovetail's distributions that fit the installed one: `>=0.1,<0.2`."""
    major, minor = __version__.split(".")[:2]
    return f">={major}.{minor},<{major}.{int(minor) + 1}"


def _onnx_version() -> str:
    return ".".join(version_of("onnx").split(".")[:2])


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write all files or none."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFolder("new-backend", folder.parent) as beside:
            made = beside / "made"
            for name, text in texts.items():
                path = made / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            if folder.is_dir():
                folder.rmdir()  # it is empty
            shutil.move(made, folder)
    except OSError as error:
        raise DovetailError(
            f"{folder} could not be written: {error.strerror or error}", "name another folder with -o"
        ) from error
