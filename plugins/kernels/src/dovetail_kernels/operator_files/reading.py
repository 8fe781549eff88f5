"""Reading operator files: all errors of a file are collected, each with file and line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from dovetail.errors import DovetailError
from dovetail_schemas.errors import SchemaError, near_miss
from dovetail_schemas.operator_facts import parse_operator_facts
from dovetail_schemas.yaml_source import Entries, Items, Node, Scalar, load_document

from dovetail_kernels.operator_files.checks import entry_problems, gradient_problems
from dovetail_kernels.operator_files.entries import (
    FunctionCall,
    InferMeta,
    KeyCandidates,
    OperatorEntry,
    OperatorFile,
    OperatorKernel,
)
from dovetail_kernels.operator_files.signatures import (
    BadSignature,
    parse_args,
    parse_call,
    parse_candidates,
    parse_forward,
    parse_kernels,
    parse_names,
    parse_outputs,
    parse_pairs,
)

if TYPE_CHECKING:
    from dovetail.plugin import Source


T = TypeVar("T")

_FILE_KEYS = ("domain", "version", "opset", "functions", "facts", "operators")
_KEYS = (
    "op", "backward_op", "forward", "args", "output", "infer_meta", "kernel", "backward", "invoke", "inplace", "view",
    "optional", "intermediate", "no_need_buffer", "data_transform", "composite", "support_dygraph_mode",
    "support_tensor", "traits", "interfaces",
)  # fmt: skip
_INFER_META = ("func", "param", "spmd_rule", "local_shape", "global_shape")
_KERNEL = ("func", "param", "data_type", "layout", "backend", "force_backend")
_TRANSFORM = ("skip_transform", "support_trans_dtype")


def read_operators(source: Source, domain: str = "") -> OperatorFile:
    """Read an operator file.

    Args:
        source: The file: a list of entries as in Paddle's `ops.yaml`, or a mapping with `domain`, `version`, `opset`
            (of ONNX, for texts under `composite:`), `functions` (the module with the functions that entries name),
            `facts` (in the form of `ops/onnx.yaml`) and `operators`.
        domain: The domain of the operators, if the file does not name one.

    Raises:
        DovetailError: The file cannot be read, or entries are invalid: one line per error.
    """
    tree = load_document(source)
    version, opset, functions, functions_at = 1, OperatorFile("", 1).opset, "", ""
    listed: Node = tree
    if isinstance(tree, Entries):
        tree.only("file", _FILE_KEYS)
        listed = tree.require("operators")
        domain = node.text("domain") if (node := tree.get("domain")) else domain
        if (node := tree.get("functions")) is not None:
            functions, functions_at = node.text("functions"), node.where
        version, opset = _version(tree, "version", 1), _version(tree, "opset", opset)
    if not isinstance(listed, Items):
        raise listed.error("a list of entries is expected: '- op: name'")
    if not domain:
        raise tree.error("the file names no domain; write `domain: NAME` above `operators:`")
    reader = _Reader()
    file = OperatorFile(domain, version, functions=functions, functions_at=functions_at, opset=opset)
    for item in listed.items:
        reader.enter(item, file)
    known = {**file.entries, **file.gradients}
    for entry in known.values():
        reader.problems += entry_problems(entry)
    reader.problems += gradient_problems(file)
    if isinstance(tree, Entries) and (node := tree.get("facts")) is not None:
        try:
            file = replace(file, facts=parse_operator_facts(node.entries("facts"), domain, _ports(file)))
        except SchemaError as error:
            reader.problems.append(error.message)
    if reader.problems:
        raise DovetailError("\n  ".join(reader.problems), "correct the file; every line above names a place in it")
    return file


def _ports(file: OperatorFile) -> dict[str, tuple[list[str], list[str]]]:
    """Return the input and output names of every operator."""
    entries = file.entries.values()
    return {one.name: ([arg.name for arg in one.inputs], [output.name for output in one.outputs]) for one in entries}


def _version(tree: Entries, key: str, default: int) -> int:
    node = tree.get(key)
    if node is None:
        return default
    value = node.plain()
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10_000:
        raise node.error(f"{key}: a whole number from 1 is expected")
    return value


class _Reader:
    """Reads entries one by one, and collects errors."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def enter(self, item: Node, file: OperatorFile) -> None:
        """Read one entry into `file`."""
        before = len(self.problems)
        try:
            entry, is_gradient = self._entry(item)
        except SchemaError as error:
            self.problems.append(error.message)
            return
        if len(self.problems) > before:
            return
        other = file.entries.get(entry.name) or file.gradients.get(entry.name)
        if other is not None:
            self.problems.append(f"{entry.where}: '{entry.name}' is defined twice (first at {other.where})")
            return
        (file.gradients if is_gradient else file.entries)[entry.name] = entry

    def _entry(self, item: Node) -> tuple[OperatorEntry, bool]:
        keys = item.entries("entry")
        for key, _ in keys:
            if key.raw not in _KEYS:
                self.problems.append(key.error(f"unknown key '{key.raw}'{near_miss(key.raw, _KEYS)}").message)
        name, is_gradient = keys.get("op"), keys.get("backward_op") is not None
        if (name is None) is not is_gradient:
            raise item.error("an entry has one of 'op' and 'backward_op'")
        name = keys.require("backward_op" if is_gradient else "op")
        composite, body = self._composite(keys)
        entry = OperatorEntry(
            name=self._get(name, "name of an operator", _single, ""),
            args=self._parsed(keys, "args", parse_args, (), required=True),
            outputs=self._parsed(keys, "output", parse_outputs, (), required=True),
            where=item.where,
            infer_meta=self._infer_meta(keys),
            kernel=self._kernel(keys),
            composite=composite,
            body=body,
            invoke=self._parsed(keys, "invoke", parse_call, None),
            forward=self._forward(keys),
            backward=self._parsed(keys, "backward", _single, ""),
            inplace=self._parsed(keys, "inplace", parse_pairs, ()),
            view=self._parsed(keys, "view", parse_pairs, ()),
            **{key: frozenset(self._names(keys, key)) for key in ("optional", "intermediate", "no_need_buffer")},
            **self._transform(keys),
            traits=self._names(keys, "traits"),
            interfaces=self._names(keys, "interfaces"),
        )
        if is_gradient and entry.forward is None and keys.get("forward") is None:
            raise item.error(f"'{entry.name}' has no forward: name (args) -> outputs")
        return entry, is_gradient

    def _get(self, node: Node, what: str, parse: Callable[[str], T], default: T) -> T:
        try:
            return parse(node.text(what))
        except BadSignature as error:
            self.problems.append(node.error(f"{what}: {error}").message)
        except SchemaError as error:
            self.problems.append(error.message)
        return default

    def _parsed(self, keys: Entries, key: str, parse: Callable[[str], T], default: T, *, required: bool = False) -> T:
        node = keys.get(key)
        if node is None:
            if required:
                self.problems.append(keys.error(f"key '{key}' is missing").message)
            return default
        return self._get(node, key, parse, default)

    def _names(self, keys: Entries, key: str) -> tuple[str, ...]:
        """Parse a YAML or comma-separated list of words; traits are qualified: `paddle::dialect::ForwardOnlyTrait`."""
        node = keys.get(key)
        if node is None:
            return ()
        parse = _words if key in ("traits", "interfaces") else parse_names
        none: tuple[str, ...] = ()
        parts = node.items if isinstance(node, Items) else (node,)
        return tuple(name for part in parts for name in self._get(part, key, parse, none))

    def _section(self, keys: Entries, key: str, allowed: tuple[str, ...]) -> Entries | None:
        node = keys.get(key)
        if node is None:
            return None
        section = node.entries(key)
        for inner, _ in section:
            if inner.raw not in allowed:
                problem = f"unknown key '{inner.raw}' in {key}{near_miss(inner.raw, allowed)}"
                self.problems.append(inner.error(problem).message)
        return section

    def _infer_meta(self, keys: Entries) -> InferMeta | None:
        section = self._section(keys, "infer_meta", _INFER_META)
        if section is None:
            return None
        function = self._parsed(section, "func", _single, "", required=True)
        others = ((key.raw, _plain(node)) for key, node in section if key.raw not in ("func", "param"))
        return InferMeta(FunctionCall(function, self._names(section, "param")), tuple(others))

    def _kernel(self, keys: Entries) -> OperatorKernel | None:
        section = self._section(keys, "kernel", _KERNEL)
        if section is None:
            return None
        parts = ("data_type", "backend", "layout")
        return OperatorKernel(
            self._parsed(section, "func", parse_kernels, (), required=True),
            self._names(section, "param"),
            **{key: self._parsed(section, key, parse_candidates, KeyCandidates()) for key in parts},
            force_backend=self._parsed(section, "force_backend", _single, ""),
        )

    def _composite(self, keys: Entries) -> tuple[FunctionCall | None, str]:
        """Parse the function under `composite:`, or the text of its nodes."""
        node = keys.get("composite")
        if isinstance(node, Scalar) and "=" in node.raw:
            return None, node.raw
        return self._parsed(keys, "composite", parse_call, None), ""

    def _forward(self, keys: Entries) -> OperatorEntry | None:
        node = keys.get("forward")
        if node is None:
            return None
        signature = self._get(node, "forward", parse_forward, None)
        return None if signature is None else OperatorEntry(*signature, where=node.where)

    def _transform(self, keys: Entries) -> dict[str, frozenset[str]]:
        section = self._section(keys, "data_transform", _TRANSFORM)
        names = {} if section is None else {key: frozenset(self._names(section, key)) for key in _TRANSFORM}
        return {key: names.get(key, frozenset()) for key in _TRANSFORM}


def _single(text: str) -> str:
    names = parse_names(text)
    if len(names) != 1:
        raise BadSignature(f"'{text}' is not one name")
    return names[0]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _plain(node: Node) -> str:
    return str(node.plain())
