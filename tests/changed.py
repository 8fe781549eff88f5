"""`pytest --changed[=REF]`: run the test files that a change may affect, by what they import, name and load.

A test file is affected by itself, by data beside it, and by every module that it imports, directly or not. Plugins are
loaded, not imported: a test that loads them depends on whatever takes part in every compilation, and on what it names:
a backend, a command, an option, an emitter. Data of a package counts as the package; files outside of packages and
tests (pages, examples) affect the tests that name a part of their path. In doubt, a test is affected: a changed
`conftest.py` or `pyproject.toml` affects all.
"""

import ast
import re
import subprocess
from collections import defaultdict
from functools import cache, cached_property
from typing import NamedTuple

import pytest
from dovetail.lazy_imports import stub_imports

PACKAGES = ("core/src", "schemas/src", "plugins/*/src", "backends/*/src", "tests/example_*/src", "examples/*/src")
EVERYTHING = ("conftest.py", "pyproject.toml", "changed.py")
"""Names of files that may affect every test."""
NAMED = {"command", "option", "emitter", "conformance", "folder_kind", "backend"}
"""Kinds of components that take part only where they are named."""
LOADING = {"load_plugins", "compile", "main", "dovetail"}
"""Names of what loads plugins; fixtures of `conftest.py` that use one of them count, too."""
APART = "examples"
"""The folder of tests that run only where it, or one of them, is named."""
TARGET = re.compile(r"^([A-Za-z_][\w.]*):[\w./-]+$")
WORD = re.compile(r"[A-Za-z0-9_][\w.-]*")


def pytest_addoption(parser):
    parser.addoption(
        "--changed", nargs="?", const="HEAD", metavar="REF", help="run what changes since REF (HEAD) may affect"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Replace the files and folders to run by the affected files among them; workers get them instead of the option."""
    if (ref := config.option.changed) is None:
        return
    config.option.changed = None
    changed = changed_files(config.rootpath, ref)
    chosen = [(config.invocation_params.dir / each.partition("::")[0]).resolve() for each in config.args]
    affected = Repository(config.rootpath).affected(changed)
    found = [
        path
        for path in affected
        if any(path.is_relative_to(each) and (APART not in path.parts or APART in each.parts) for each in chosen)
    ]
    if not found:
        pytest.exit(f"no test depends on the {len(changed)} files that changed since {ref}", returncode=0)
    config.args[:] = map(str, found)


def changed_files(root, ref):
    """The files that differ from a commit, in the index, in the folder, or untracked."""
    found, differing = set(), ("diff", "--name-only", "--no-renames", "--relative", ref, "--")
    for command in (differing, ("ls-files", "--others", "--exclude-standard")):
        git = subprocess.run(["git", "-c", "core.quotePath=off", *command], cwd=root, capture_output=True, text=True)
        if git.returncode:
            raise pytest.UsageError(git.stderr.strip())
        found.update(root / name for name in git.stdout.splitlines())
    return found


class Contents(NamedTuple):
    """What a Python file says.

    Attributes:
        imports: Modules, each with the name that is imported from it, or None; those after a lazy target are included.
        components: Kind, name and target of what its hook `register` registers.
        words: Identifiers, and words of its texts, with '-' for '_'.
        functions: The words of each function on the top level.
    """

    imports: frozenset
    components: tuple
    words: frozenset
    functions: dict


@cache
def contents(path, package):
    """Read a Python file; `package` is where its relative imports start."""
    imports, components, functions, left_out = set(), [], {}, set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            functions[statement.name] = words_of(statement)
            if statement.name == "register":
                left_out.update(map(id, ast.walk(statement)))
                components += registered(statement)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, (start, node.module)))
            imports.update((module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            imports.update((target, None) for target in TARGET.findall(node.value)[:1])
    return Contents(frozenset(imports), tuple(components), words_of(tree), functions)


def registered(function):
    """Kind, name and target of each `registry.kind("name", "target")` in a function."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 2:
            name, target = (getattr(each, "value", None) for each in node.args)
            if isinstance(name, str) and isinstance(target, str):
                yield node.func.attr.rstrip("_"), name, target


def words_of(tree):
    found = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "value"):
            text = getattr(node, field, None)
            if isinstance(text, str):
                found.update(WORD.findall(text))
    return frozenset(found | {word.replace("_", "-") for word in found})


class Repository:
    """The modules and tests below a folder, and which depend on which."""

    def __init__(self, root):
        self.root = root
        self._sources = [folder for pattern in PACKAGES for folder in root.glob(pattern)]
        self._tests = root / "tests"
        self.modules = {}
        """The file of each module, by its name."""
        for start, below in (*((each, each) for each in self._sources), (root, self._tests)):
            for path in below.rglob("*.py"):
                parts = path.relative_to(start).with_suffix("").parts
                self.modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        self._names = {path: name for name, path in self.modules.items()}
        self.tests = sorted(path for path in self._names if path.name.startswith("test_"))
        """The test files."""

    def contents(self, path):
        """What a Python file says; see `Contents`."""
        name = self._names[path]
        return contents(path, name if path.name == "__init__.py" else name.rpartition(".")[0])

    def imported(self, path):
        """The files that a file imports, also in functions and by the names that a lazy package exports."""
        found = set()
        for module, name in self.contents(path).imports:
            if module not in self.modules:
                continue
            package = self.modules[module]
            found.update({package, self.modules.get(f"{module}.{name}", package)})
            if (stub := package.with_suffix(".pyi")).exists():
                public = stub_imports(stub)
                of = public.values() if name is None else [public.get(name)]
                found.update(self.modules[each] for each in of if each in self.modules)
        return found

    @cached_property
    def components(self):
        """Kind, name and file of what is registered, by the entry module."""
        found = {}
        for entry in self._names:
            if entry.name == "__init__.py" and (those := self.contents(entry).components):
                found[entry] = [(kind, name, self.modules.get(t.partition(":")[0], entry)) for kind, name, t in those]
        return found

    @cached_property
    def always(self):
        """The files that take part in every compilation of a program that loads plugins."""
        found = set()
        for entry, components in self.components.items():
            if {"plugins", "schemas", "host"} & set(entry.relative_to(self.root).parts):
                found |= {entry, *(path for kind, _, path in components if kind not in NAMED)}
        return found

    def named(self, words):
        """The files of what is registered under one of some words; one name of a backend stands for all that is its."""
        found = set()
        for entry, components in self.components.items():
            of_plugin = "plugins" in entry.relative_to(self.root).parts
            those = {path for _, name, path in components if name in words}
            found |= those if of_plugin or not those else {entry, *(path for *_, path in components)}
        return found

    @cached_property
    def loading(self):
        """Names whose use loads plugins: some functions, and fixtures that use them."""
        functions = {}
        for path in self._names:
            if path.name == "conftest.py":
                functions |= self.contents(path).functions
        found, before = set(LOADING), 0
        while len(found) > before:
            before = len(found)
            found |= {name for name, words in functions.items() if words & found}
        return found

    @cache  # noqa: B019 - as long as the repository
    def _described(self, folder):
        """The words of models and backend files in and below a folder of tests."""
        paths = (path for path in folder.rglob("*") if path.suffix in (".onnxtxt", ".yaml"))
        return frozenset(word for path in paths for word in WORD.findall(path.read_text(encoding="utf-8")))

    def words(self, test):
        """The words in a test file, in the modules of tests that it imports, and in models and backend files beside."""
        own = closure([test], lambda path: {each for each in self.imported(path) if each.is_relative_to(self._tests)})
        return self._described(test.parent).union(*(self.contents(path).words for path in own))

    def starts(self, test, words):
        """The files that a test file, with these words, needs directly."""
        found = {test, *self.named(words)}
        found.update(path for folder in test.parents if (path := folder / "conftest.py") in self._names)
        if words & self.loading:
            found |= self.always
        if "registry" in words:
            found.update(path for components in self.components.values() for *_, path in components)
        return found

    def affected(self, changed):
        """The test files that changed files may affect."""
        if any(path.name in EVERYTHING for path in changed):
            return self.tests
        files, folders, parts = set(), set(), set()
        for path in changed:
            if owner := self._owner(path):
                inside = owner.parent if owner.name == "__init__.py" else owner  # Python imports it with each of these
                files.update(each for each in self._names if each.is_relative_to(inside))
                files.add(path)  # although it may be deleted
            elif path.is_relative_to(self._tests):
                folders.add(next(each for each in path.parents if any(each == test.parent for test in self.tests)))
            else:
                parts |= {path.stem, *path.relative_to(self.root).parts} - {"core", "plugins", "backends", "schemas"}
        importers = defaultdict(set)
        for path in self._names:
            for each in self.imported(path):
                importers[each].add(path)
        files = closure(files, lambda path: importers[path])
        found = []
        for test in self.tests:
            words = self.words(test)
            if words & parts or self.starts(test, words) & files or any(test.is_relative_to(each) for each in folders):
                found.append(test)
        return found

    def _owner(self, path):
        """The module that a file is, or the package that it is data or a lost module of; None for other files."""
        if path in self._names:
            return path
        for folder in path.parents if any(path.is_relative_to(each) for each in self._sources) else ():
            if (package := folder / "__init__.py") in self._names:
                return package
        return None


def closure(starts, following):
    """What is reached from some things by a function that says what follows on one, with themselves."""
    seen, left = set(), list(starts)
    while left:
        if (one := left.pop()) not in seen:
            seen.add(one)
            left += following(one)
    return seen
