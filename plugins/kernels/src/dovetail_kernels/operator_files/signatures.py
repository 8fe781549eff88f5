"""Grammar of signatures: arguments with types and defaults, outputs with sizes, calls, pairs, candidates.

    (Tensor x, Tensor[] ys, int axis = -1, str data_format = "NCHW")        Tensor(out), Tensor[](parts){ys.size()}

Source of the grammar: the files that Paddle generates its operators from (`phi/ops/yaml`).
"""

from __future__ import annotations

import re

from dovetail.text import did_you_mean

from dovetail_kernels.operator_files.entries import FunctionCall, KeyCandidates, OperatorArgument, OperatorOutput

TENSORS = ("Tensor", "Tensor[]")
_PLAIN = ("bool", "int", "int64_t", "float", "double", "str")
_SCALARS = ("Scalar", *(f"Scalar({kind})" for kind in _PLAIN[:-1]))
_WORDS = ("Place", "DataLayout", "DataType")
ATTRIBUTE_TYPES = ("IntArray", *_SCALARS, "Scalar[]", *_WORDS, *_PLAIN, *(f"{kind}[]" for kind in _PLAIN))

_NAME = re.compile(r"[A-Za-z_]\w*")
_ARGUMENT = re.compile(r"(?P<type>[A-Za-z_]\w*(?:\(\w+\))?(?:\[\])?)\s+(?P<name>[A-Za-z_]\w*)(?:\s*=\s*(?P<value>.+))?")
_OUTPUT = re.compile(r"(?P<type>Tensor(?:\[\])?)(?:\s*\(\s*(?P<name>\w+)\s*\))?(?:\s*\{(?P<size>[^{}]*)\})?")
_CALL = re.compile(r"(?P<function>[A-Za-z_]\w*)\s*\((?P<arguments>[^()]*)\)")
_KERNEL = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\s*\{(?P<kinds>[^{}]*->[^{}]*)\})?")
_CANDIDATE = re.compile(r"[A-Za-z_]\w*|complex\(\s*[A-Za-z_]\w*\s*\)|Data(?:Type|Layout)::\w+|Backend::\w+")
_KINDS = {"dense", "selected_rows", "sparse_coo", "sparse_csr"}


class BadSignature(ValueError):
    """A text does not follow the grammar; the message says why."""


def parse_args(text: str) -> tuple[OperatorArgument, ...]:
    """Parse `(Tensor x, int axis = -1)`: inputs first, defaults last.

    Raises:
        Malformed: It is not an argument list.
    """
    text = text.strip()
    if not (text.startswith("(") and text.endswith(")")):
        raise BadSignature(f"'{text}' is no list of arguments in parentheses: (Tensor x, int axis = -1)")
    found: list[OperatorArgument] = []
    for part in _split(text[1:-1]):
        match = _ARGUMENT.fullmatch(part)
        if match is None:
            raise BadSignature(f"'{part}' is no argument: a type, a name, and perhaps '= default'")
        kind, name, value = match["type"], match["name"], match["value"]
        if kind not in TENSORS and kind not in ATTRIBUTE_TYPES:
            raise BadSignature(f"'{kind}' of '{name}' is no type{did_you_mean(kind, (*TENSORS, *ATTRIBUTE_TYPES))}")
        if any(other.name == name for other in found):
            raise BadSignature(f"'{name}' is given twice")
        if kind in TENSORS:
            if value is not None:
                raise BadSignature(f"tensor '{name}' has a default; list it under optional: instead")
            if found and not found[-1].is_tensor:
                raise BadSignature(f"tensor '{name}' stands behind attribute '{found[-1].name}'; tensors come first")
        elif value is None and found and found[-1].has_default:
            raise BadSignature(f"'{name}' has no default, and '{found[-1].name}' before it has one")
        default = None if value is None else _value(value.strip(), kind, name)
        found.append(OperatorArgument(name, kind, value is not None, default))
    return tuple(found)


def parse_outputs(text: str) -> tuple[OperatorOutput, ...]:
    """Parse `Tensor(out), Tensor[](parts){x.size()}`; a single unnamed output is `out`.

    Raises:
        Malformed: It is not an output list.
    """
    parts, found = _split(text), []
    for part in parts:
        match = _OUTPUT.fullmatch(part)
        if match is None:
            raise BadSignature(f"'{part}' is no output: Tensor(name), or Tensor[](name){{size}}")
        kind, name, size = match["type"], match["name"], (match["size"] or "").strip()
        if name is None and len(parts) > 1:
            raise BadSignature(f"output '{part}' has no name; where there are several, each has one")
        if size and kind == "Tensor":
            raise BadSignature(f"output '{name or 'out'}' is one tensor, and has a size; only Tensor[] has")
        found.append(OperatorOutput(name or "out", kind, size))
    names = [one.name for one in found]
    if not found:
        raise BadSignature("there is no output")
    if len(set(names)) < len(names):
        raise BadSignature(f"outputs {', '.join(names)}: a name is given twice")
    return tuple(found)


def parse_call(text: str) -> FunctionCall:
    """Parse `function(x, axis)`.

    Raises:
        Malformed: It is not a call.
    """
    match = _CALL.fullmatch(text.strip())
    if match is None:
        raise BadSignature(f"'{text.strip()}' is no call: function(argument, ...)")
    return FunctionCall(match["function"], parse_names(match["arguments"]))


def parse_forward(text: str) -> tuple[str, tuple[OperatorArgument, ...], tuple[OperatorOutput, ...]]:
    """Parse `relu (Tensor x) -> Tensor(out)`: the signature of the operator that a gradient belongs to.

    Raises:
        Malformed: It is not a signature.
    """
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(\(.*\))\s*->\s*(.+)", text, re.DOTALL)
    if match is None:
        raise BadSignature(f"'{text.strip()}' is no signature: name (arguments) -> outputs")
    return match[1], parse_args(match[2]), parse_outputs(match[3])


def parse_kernels(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `relu, relu_sparse {sparse_coo -> sparse_coo}`: names, each with the kinds of tensors.

    Raises:
        Malformed: A name or a kind is invalid.
    """
    found = []
    for part in _split(text):
        match = _KERNEL.fullmatch(part)
        if match is None:
            raise BadSignature(f"'{part}' is no kernel: name, or name {{dense -> dense}}")
        kinds = match["kinds"] or ""
        for word in re.split(r"->|,", kinds) if kinds else ():
            kind = word.strip().removeprefix("vec::")
            if kind not in _KINDS:
                raise BadSignature(
                    f"'{kind}' of kernel '{match['name']}' is no kind of tensor{did_you_mean(kind, _KINDS)}"
                )
        found.append((match["name"], " ".join(kinds.split())))
    return tuple(found)


def parse_names(text: str) -> tuple[str, ...]:
    """Parse `x, y`: names of arguments.

    Raises:
        Malformed: One is not a name.
    """
    names = _split(text)
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise BadSignature(f"'{name}' is no name")
    return tuple(names)


def parse_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `(x -> out), (y -> out2)`.

    Raises:
        Malformed: It is not a list of pairs.
    """
    found = []
    for part in _split(text):
        match = re.fullmatch(r"\(\s*(\w+)\s*->\s*(\w+)\s*\)", part)
        if match is None:
            raise BadSignature(f"'{part}' is no pair: (input -> output)")
        found.append((match[1], match[2]))
    return tuple(found)


def parse_candidates(text: str) -> KeyCandidates:
    """Parse `x > y` or `x, y`.

    Raises:
        Malformed: A candidate is neither a name nor a literal, or both forms are mixed.
    """
    if ">" in text and "," in text:
        raise BadSignature(f"'{text}' mixes '>' and ','")
    names = tuple(part.strip() for part in re.split(r"[>,]", text))
    for name in names:
        if _CANDIDATE.fullmatch(name) is None:
            raise BadSignature(f"'{name}' is neither an argument nor a literal such as DataType::FLOAT32")
    return KeyCandidates(names, ">" in text or len(names) == 1)


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets and strings."""
    parts, depth, start, quoted = [], 0, 0, False
    for index, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif character in "({[":
            depth += 1
        elif character in ")}]":
            depth -= 1
            if depth < 0:
                raise BadSignature(f"'{character}' in '{text}' closes nothing")
        elif character == "," and not depth:
            parts.append(text[start:index].strip())
            start = index + 1
    if depth or quoted:
        raise BadSignature(f"'{text}' is not closed")
    if text[start:].strip() or parts:
        parts.append(text[start:].strip())
    if not all(parts):
        raise BadSignature(f"'{text}' has an empty part")
    return parts


def _value(text: str, kind: str, name: str) -> object:
    """Convert a default to a Python value."""
    if kind.endswith("[]") or kind == "IntArray":
        if not (text.startswith("{") and text.endswith("}")):
            raise BadSignature(f"the default '{text}' of '{name}' is no list: {{1, 2}}")
        inner = "int64_t" if kind == "IntArray" else kind.removesuffix("[]")
        return [_value(part, inner, name) for part in _split(text[1:-1])]
    if kind in _WORDS:
        match = re.fullmatch(rf"{kind}::(\w+)|{kind}\(\)|(\w+)\(\)", text)
        if match is None:
            raise BadSignature(f"the default '{text}' of '{name}' is not of the form {kind}::NAME")
        return match[1] or ""
    if kind == "str":
        if len(text) < 2 or text[0] != text[-1] or text[0] not in "\"'":
            raise BadSignature(f"the default {text} of '{name}' is no text in quotes")
        return text[1:-1]
    return _number(text, kind, name)


def _number(text: str, kind: str, name: str) -> object:
    if text in ("true", "false"):
        if kind != "bool" and not kind.startswith("Scalar"):
            raise BadSignature(f"the default '{text}' of '{name}' is no {kind}")
        return text == "true"
    wanted = kind.removeprefix("Scalar").strip("()") or "any"
    whole = re.fullmatch(r"[-+]?\d{1,20}[lL]{0,2}", text)
    if whole and wanted != "bool":
        number = int(text.rstrip("lL"))
        return float(number) if wanted in ("float", "double") else number
    if wanted in ("float", "double", "any") and re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,4})?[fF]?", text):
        return float(text.rstrip("fF"))
    if wanted in ("float", "double", "any") and text.lstrip("+-") in ("inf", "nan"):
        return float(text)
    raise BadSignature(f"the default '{text}' of '{name}' is no {kind}")
