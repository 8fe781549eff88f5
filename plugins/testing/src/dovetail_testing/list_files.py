"""Lists of a backend: operators and tests that are exact, are within a tolerance, only run, or fail.

backend: acme-npu
onnx: "1.23"
exact:
  operators: [Relu, MaxPool]
relaxed:
  - operators: [Conv, MatMul]
    tolerance: 0.002
    why: sums are kept in float16
  - tests: [test_attention_*_expanded]
    tolerance: 0.01
    why: a product after a Softmax
run_only:
  - operators: [RandomNormal]
    why: random numbers
fails:
  - tests: [test_maxpool_with_argmax_2d_precomputed_pads]
    why: indices count the padding
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dovetail_kernels.operator_files.library import library_of
from dovetail_schemas.errors import near_miss
from dovetail_schemas.operators import operator_names
from dovetail_schemas.yaml_source import Entries, Items, Node, Scalar, load_tree

from dovetail_testing.case import SUITES

if TYPE_CHECKING:
    from dovetail.plugin import Registry, Source

    from dovetail_testing.case import Case


Kind = Literal["exact", "relaxed", "run_only", "fails"]
_KINDS: tuple[Kind, ...] = ("exact", "relaxed", "run_only", "fails")


@dataclass(frozen=True)
class Expectation:
    """One entry of a list.

    Attributes:
        kind: The list that contains it.
        names: Its operators or tests as written; in tests, `*` matches any part.
        of_tests: Whether the names are tests.
        where: File and line.
        tolerance: For `relaxed`, the largest difference relative to the largest magnitude of the output.
        why: The reason; empty for `exact`.
    """

    kind: Kind
    names: tuple[Scalar, ...]
    of_tests: bool
    where: str
    tolerance: float = 0.0
    why: str = ""


@dataclass(frozen=True)
class ListsFile:
    """One file of lists.

    Attributes:
        backend: The backend of the lists.
        entries: Its entries.
        onnx: The version of onnx for its test names; empty if unspecified.
        name: The node of the backend's name, for errors.
        notes: A paragraph for the page of results; empty if there is none.
    """

    backend: str
    entries: tuple[Expectation, ...]
    onnx: str
    name: Node
    notes: str = ""


def read_lists(source: Source) -> ListsFile:
    """Read a file of lists.

    Raises:
        SchemaError: It cannot be read, or a key or a value is invalid; the error has its line.
    """
    tree = load_tree(source).only("file", ("backend", "onnx", "notes", *_KINDS))
    name = tree.require("backend")
    version, notes = tree.get("onnx"), tree.get("notes")
    entries: list[Expectation] = []
    for kind in _KINDS:
        node = tree.get(kind)
        if node is not None and not (isinstance(node, Scalar) and node.is_null):
            entries += _entries(kind, node)
    _refuse_twice(entries)
    said = notes.text("notes").strip() if notes else ""
    return ListsFile(name.text("backend"), tuple(entries), version.text("onnx") if version else "", name, said)


def _entries(kind: Kind, node: Node) -> Iterator[Expectation]:
    if kind != "exact" and not isinstance(node, Items):
        raise node.error(f"{kind}: a list of entries is expected: '- operators: [Conv]'")
    allowed = {"exact": (), "relaxed": ("tolerance", "why")}.get(kind, ("why",))
    for item in node.items if isinstance(node, Items) else (node,):
        entry = item.entries(kind).only(kind, ("operators", "tests", *allowed))
        if entry.get("operators") is None and entry.get("tests") is None:
            raise entry.error(f"{kind}: 'operators' or 'tests' is missing")
        tolerance = _tolerance(entry) if "tolerance" in allowed else 0.0
        why = _why(entry, kind) if "why" in allowed else ""
        for key in ("operators", "tests"):
            names = entry.get(key)
            if names is not None:
                words = tuple(names.words(key))
                yield Expectation(kind, words, key == "tests", entry.where, tolerance, why)


def _tolerance(entry: Entries) -> float:
    node = entry.require("tolerance")
    value = node.plain()
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise node.error("tolerance: a number above 0 is expected: a share of the largest magnitude of an output")
    return float(value)


def _why(entry: Entries, kind: Kind) -> str:
    node = entry.get("why")
    if node is None or isinstance(node, Scalar) and not node.raw.strip():
        raise (node or entry).error(f"{kind}: 'why' is missing; say what makes the results differ")
    return node.text("why")


def _refuse_twice(entries: Iterable[Expectation]) -> None:
    first: dict[tuple[bool, str], Scalar] = {}
    for entry in entries:
        for name in entry.names:
            other = first.setdefault((entry.of_tests, name.raw), name)
            if other is not name:
                raise name.error(f"'{name.raw}' is listed twice (first on line {other.line})")


@dataclass
class Lists:
    """The lists of one backend from all files; later entries win.

    Attributes:
        files: The files.
    """

    files: Sequence[ListsFile] = ()
    _operators: dict[str, Expectation] = field(default_factory=dict, repr=False)
    _tests: dict[str, Expectation] = field(default_factory=dict, repr=False)
    _patterns: list[tuple[str, Expectation]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        for file in self.files:
            for entry in file.entries:
                for name in entry.names:
                    if not entry.of_tests:
                        self._operators[_plain_operator(name.raw)] = entry
                    elif "*" in name.raw:
                        self._patterns.append((name.raw, entry))
                    else:
                        self._tests[name.raw] = entry

    @property
    def notes(self) -> list[str]:
        """The notes of all files."""
        return [file.notes for file in self.files if file.notes]

    def expectation(self, name: str, operator: str) -> Expectation | None:
        """Return the entry for a test: by its name, a pattern, or its operator; None if it is not listed."""
        if name in self._tests:
            return self._tests[name]
        found = next((entry for pattern, entry in reversed(self._patterns) if fnmatchcase(name, pattern)), None)
        return found or self._operators.get(operator)

    def check_names(self, cases: Collection[Case], suites: Collection[str], registry: Registry) -> list[str]:
        """Check that all listed operators and tests exist.

        Args:
            cases: All cases of the suites.
            suites: The suites of these cases; test names are only checked if all suites are included.
            registry: The registry with the operator files.

        Returns:
            Warnings about tests missing from the installed onnx, if a file was made for another version.

        Raises:
            DovetailError: An operator or a test does not exist; the error has its line and near misses.
        """

        warnings = []
        for file in self.files:
            entries = [entry for entry in file.entries if not entry.of_tests]
            check_operators([name for entry in entries for name in entry.names], registry)
            tests = [name for entry in file.entries if entry.of_tests for name in entry.names]
            warnings += unknown_tests(tests, [case.name for case in cases], suites, file.onnx)
        return warnings


def lists(backend: str, registry: Registry, files: Iterable[str | Path] = ()) -> Lists:
    """Load the lists of a backend: those shipped by distributions, then the user's.

    Args:
        backend: Its name.
        registry: The registry with the shipped lists.
        files: Files of the user; those for other backends are skipped.

    Raises:
        DovetailError: A file is invalid.
    """
    found = []
    for name in registry.conformance:
        file = read_lists(registry.conformance[name])
        if file.backend == backend:
            found.append(file)
    found += [file for file in map(read_lists, map(Path, files)) if file.backend == backend]
    return Lists(tuple(found))


def check_backends(files: Iterable[str | Path], chosen: Collection[str]) -> None:
    """Check that the user's files are for requested backends.

    Raises:
        SchemaError: A file is for another backend.
    """
    for file in map(read_lists, map(Path, files)):
        if file.backend not in chosen:
            problem = f"these lists are for backend '{file.backend}', and the run is for {', '.join(sorted(chosen))}"
            raise file.name.error(f"{problem}{near_miss(file.backend, chosen)}")


def _plain_operator(name: str) -> str:
    return name.removeprefix("ai.onnx::")


def check_operators(names: Iterable[Scalar], registry: Registry) -> None:
    """Check that onnx or an installed operator file defines all operators.

    Raises:
        DovetailError: An operator is undefined, or an operator file is invalid.
    """
    library = library_of(registry)
    for name in names:
        domain, _, operator = name.raw.rpartition("::")
        own = {other for of, other in library.definitions if of == domain}
        known = own or operator_names(domain)
        if not known:
            problem = f"unknown domain '{domain}'{near_miss(domain, library.versions)}"
            raise name.error(f"{problem}; no installed file of operators has it")
        if operator not in known:
            raise name.error(f"unknown operator '{name.raw}'{near_miss(operator, known)}")


def unknown_tests(names: Iterable[Scalar], cases: Collection[str], suites: Collection[str], made_for: str) -> list[str]:
    """Return warnings about tests missing from the installed onnx, for lists made for another version.

    Args:
        names: The listed names; `*` matches any part.
        cases: The names of all cases of the suites.
        suites: The suites; a name that may belong to another suite is skipped.
        made_for: The version of onnx that the lists were made for; empty if unspecified.

    Raises:
        SchemaError: A test does not exist.
    """
    from onnx import __version__

    if set(suites) != set(SUITES):
        # Only the naming scheme of node tests is known.
        names = [name for name in names if name.raw.startswith("test_") and "nodes" in suites]
    other = made_for and __version__.split(".")[:2] != made_for.split(".")[:2]
    warnings = []
    for name in names:
        wild = "*" in name.raw
        if any(fnmatchcase(case, name.raw) for case in cases) if wild else name.raw in cases:
            continue
        if not other:
            raise name.error(f"unknown test '{name.raw}'{near_miss(name.raw, cases)}")
        warnings.append(f"{name.where}: onnx {__version__} has no test '{name.raw}', onnx {made_for} has")
    return warnings
