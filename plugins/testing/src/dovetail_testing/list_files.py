"""Lists of a backend: which operators and tests are exact, which are within a tolerance, which only run, which fail.

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
    why: a product behind a Softmax
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

from dovetail_schemas.errors import near_miss
from dovetail_schemas.operator_files.library import library_of
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
        kind: The list that it is on.
        names: What it is for, as written: operators, or tests, of which `*` stands for any part.
        of_tests: Whether the names are tests.
        where: File and line.
        tolerance: Of an entry of `relaxed`, the largest difference as a share of the largest magnitude of the output.
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
    """One file.

    Attributes:
        backend: The backend that it is about.
        entries: Its entries.
        onnx: The version of onnx whose tests it names; empty if it does not say.
        name: The node of its name, for errors.
    """

    backend: str
    entries: tuple[Expectation, ...]
    onnx: str
    name: Node


def read_lists(source: Source) -> ListsFile:
    """Read a file of lists.

    Raises:
        SchemaError: It cannot be read, or a key or a value is at fault; the error has its line.
    """
    tree = load_tree(source).only("file", ("backend", "onnx", *_KINDS))
    name = tree.require("backend")
    version = tree.get("onnx")
    entries: list[Expectation] = []
    for kind in _KINDS:
        node = tree.get(kind)
        if node is not None and not (isinstance(node, Scalar) and node.is_null):
            entries += _entries(kind, node)
    _refuse_twice(entries)
    return ListsFile(name.text("backend"), tuple(entries), version.text("onnx") if version else "", name)


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
    """The lists of one backend, from all of its files; what is read later wins.

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

    def expectation(self, name: str, operator: str) -> Expectation | None:
        """The entry for a test: that of its name, of a pattern, or of its operator; None if it is on no list."""
        if name in self._tests:
            return self._tests[name]
        found = next((entry for pattern, entry in reversed(self._patterns) if fnmatchcase(name, pattern)), None)
        return found or self._operators.get(operator)

    def check_names(self, cases: Collection[Case], suites: Collection[str], registry: Registry) -> list[str]:
        """Look whether everything that is listed is there.

        Args:
            cases: All cases of the suites.
            suites: The suites whose cases these are; names of tests are checked if all suites are among them.
            registry: Has the files of operators.

        Returns:
            Warnings: tests that are not in the installed onnx, where a file was made for another version.

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
    """The lists of a backend: those that distributions ship for it, then those of the user.

    Args:
        backend: Its name.
        registry: Has the shipped ones.
        files: Files of the user; those about other backends are left out.

    Raises:
        DovetailError: A file is at fault.
    """
    found = []
    for name in registry.conformance:
        file = read_lists(registry.conformance[name])
        if file.backend == backend:
            found.append(file)
    found += [file for file in map(read_lists, map(Path, files)) if file.backend == backend]
    return Lists(tuple(found))


def check_backends(files: Iterable[str | Path], chosen: Collection[str]) -> None:
    """Refuse files of the user about backends that are not asked for.

    Raises:
        SchemaError: There is one.
    """
    for file in map(read_lists, map(Path, files)):
        if file.backend not in chosen:
            problem = f"these lists are for backend '{file.backend}', and the run is for {', '.join(sorted(chosen))}"
            raise file.name.error(f"{problem}{near_miss(file.backend, chosen)}")


def _plain_operator(name: str) -> str:
    return name.removeprefix("ai.onnx::")


def check_operators(names: Iterable[Scalar], registry: Registry) -> None:
    """Refuse operators that neither onnx nor an installed file of operators defines.

    Raises:
        DovetailError: There is one; or a file of operators is at fault.
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
    """Warnings about tests that the installed onnx does not have, of lists that were made for another version of it.

    Args:
        names: What is listed, `*` standing for any part.
        cases: The names of all cases of the suites.
        suites: The suites; a name that may belong to another one is not looked for.
        made_for: The version of onnx that the lists were made for; empty if they do not say.

    Raises:
        SchemaError: A test does not exist.
    """
    from onnx import __version__

    if set(suites) != set(SUITES):
        # Of the node tests alone it is known how they are called.
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
