"""Mutants: small models damaged in one to three places, as a broken exporter, a bad disk or an attacker would.

A mutant is made from a seed alone. Most changes are made in the structure of the protobuf message, so that the file
still parses and the damage reaches deep: fields dropped, duplicated, swapped or taken from elsewhere, names retargeted,
types, extents, versions and lengths changed. Some are made in the bytes of the file, or in its text.
"""

import random
from dataclasses import dataclass

import onnx
from google.protobuf.descriptor import FieldDescriptor

from .mutant_bases import BASES, EXTERNAL_DATA

NUMBERS = (0, -1, 1, 2, 3, 7, 8, 9, 13, 16, 22, 23, 25, 99, 255, 2**20, 2**31 - 1, -(2**31))
LONG = (*NUMBERS, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
NAMES = (
    "", "x", "y", "nobody", "\x1b[31mred", "a\nb", "a\0b", "\x7f", "v" * 300, "../../etc/passwd", "/etc/passwd", "-4",
    "9" * 5000, "dovetail-weight", "N/2", "ümläut",
)  # fmt: skip
OPERATORS = ("Relu", "Add", "If", "Loop", "Scan", "Constant", "Identity", "Reshape", "Nonsense", "", "Shape", "Cast",
             "MatMul", "Split", "Conv")  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One damaged file.

    Attributes:
        seed: What it was made from.
        base: The name of the model that was damaged.
        content: The bytes of the file.
        changes: What was done to it.
        text: The file holds ONNX text.
    """

    seed: int
    base: str
    content: bytes
    changes: tuple[str, ...]
    text: bool = False

    def write(self, folder):
        """Write the file, and the data that lies beside it, into `folder`; returns its path."""
        path = folder / ("mutant.onnxtxt" if self.text else "mutant.onnx")
        path.write_bytes(self.content)
        (folder / "mutant.bin").write_bytes(EXTERNAL_DATA)
        return path


def mutant(seed):
    """The mutant of this seed."""
    rng = random.Random(seed)
    base = rng.choice(sorted(BASES))
    model = onnx.ModelProto.FromString(original(base))
    kind = rng.random()
    if kind < 0.06:
        text, change = _damaged_text(rng, onnx.printer.to_text(model) if base != "external" else "<>")
        return Mutant(seed, base, text.encode("utf-8", "surrogateescape"), (change,), True)
    if kind < 0.14:
        content, change = _damaged_bytes(rng, model.SerializeToString())
        return Mutant(seed, base, content, (change,))
    changes = tuple(_change(rng, model) for _ in range(rng.choice((1, 1, 1, 2, 3))))
    return Mutant(seed, base, model.SerializeToString(), changes)


_ORIGINALS = {}


def original(base):
    """The file of a base model; made once, because some of its weights are random."""
    if not _ORIGINALS:
        _ORIGINALS.update({name: make().SerializeToString() for name, make in BASES.items()})
    return _ORIGINALS[base]


def _damaged_bytes(rng, content):
    how = rng.choice(("flip", "cut", "insert", "remove", "repeat"))
    place = rng.randrange(len(content))
    if how == "flip":
        return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :], f"flip {place}"
    if how == "cut":
        return content[:place], f"cut at {place}"
    length = rng.randrange(1, 9)
    if how == "insert":
        return content[:place] + rng.randbytes(length) + content[place:], f"insert at {place}"
    if how == "remove":
        return content[:place] + content[place + length :], f"remove at {place}"
    return content[:place] + content[place : place + 40] * 2 + content[place + 40 :], f"repeat at {place}"


def _damaged_text(rng, text):
    place = rng.randrange(len(text))
    how = rng.choice(("drop", "insert", "cut", "nest"))
    if how == "drop":
        return text[:place] + text[place + rng.randrange(1, 6) :], f"text: drop at {place}"
    if how == "insert":
        return text[:place] + rng.choice(("<", "{", "(", "[", "\x1b", '"', "9" * 400, "#", "=>", "\0")) + text[
            place:
        ], (f"text: insert at {place}")
    if how == "cut":
        return text[:place], f"text: cut at {place}"
    return text[:place] + rng.choice("<{([") * 50_000 + text[place:], f"text: brackets at {place}"


def _messages(message, path=""):
    """Every message within `message`, itself among them, with a path to name it."""
    yield path, message
    for field, value in message.ListFields():
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            continue
        entries = list(value) if field.is_repeated else [value]
        for index, entry in enumerate(entries):
            yield from _messages(
                entry, f"{path}.{field.name}[{index}]" if field.is_repeated else f"{path}.{field.name}"
            )


def _change(rng, model):
    """Damage `model` in one place and say how."""
    messages = list(_messages(model))
    for _ in range(50):
        path, message = rng.choice(messages)
        fields = list(message.DESCRIPTOR.fields)
        present = [field for field, _ in message.ListFields()]
        field = rng.choice(present if present and rng.random() < 0.85 else fields)
        done = _change_field(rng, message, field, messages)
        if done:
            return f"{path}.{field.name}: {done}"
    return "nothing"


def _change_field(rng, message, field, messages):
    if field.is_repeated:
        return _change_repeated(rng, message, field, messages)
    if rng.random() < 0.25 and message.HasField(field.name):
        message.ClearField(field.name)
        return "dropped"
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return _transplant(rng, getattr(message, field.name), messages)
    value = _value(rng, field, getattr(message, field.name), messages)
    if value is None or value == getattr(message, field.name):
        return ""
    setattr(message, field.name, value)
    return f"set to {value!r:.60}"


def _change_repeated(rng, message, field, messages):
    entries = getattr(message, field.name)
    how = rng.choice(("drop", "duplicate", "swap", "change", "change", "add", "clear"))
    if how in ("drop", "duplicate", "swap") and not entries:
        return ""
    index = rng.randrange(len(entries)) if entries else 0
    if how == "drop":
        del entries[index]
        return f"dropped {index}"
    if how == "clear":
        message.ClearField(field.name)
        return "cleared"
    if how == "swap":
        other = rng.randrange(len(entries))
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            kept = type(entries[index]).FromString(entries[index].SerializeToString())
            entries[index].CopyFrom(entries[other])
            entries[other].CopyFrom(kept)
        else:
            entries[index], entries[other] = entries[other], entries[index]
        return f"swapped {index} and {other}"
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        if how == "duplicate":
            entries.add().CopyFrom(entries[index])
            return f"duplicated {index}"
        if how == "add":
            return "added: " + (_transplant(rng, entries.add(), messages) or "an empty one")
        return (entries and _transplant(rng, entries[index], messages)) or ""
    if how == "duplicate":
        entries.append(entries[index])
        return f"duplicated {index}"
    value = _value(rng, field, entries[index] if entries else None, messages)
    if value is None:
        return ""
    if how == "add" or not entries:
        entries.append(value)
        return f"added {value!r:.60}"
    entries[index] = value
    return f"{index} set to {value!r:.60}"


def _transplant(rng, target, messages):
    """Put another message of the same kind in the place of `target`."""
    same = [(path, other) for path, other in messages if other.DESCRIPTOR is target.DESCRIPTOR and other is not target]
    if not same:
        return ""
    path, other = rng.choice(same)
    content = other.SerializeToString()
    if len(content) > 20_000:
        return ""
    target.ParseFromString(content)
    return f"copied from {path}"


def _value(rng, field, old, messages):
    """A value for a field that holds numbers, text or bytes."""
    kind = field.cpp_type
    if field.type == FieldDescriptor.TYPE_BYTES:
        old = old or b""
        return rng.choice((old[:-1], old + b"\0", b"", old[: len(old) // 2], b"\xff\xfe", old * 2))
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.name == "op_type" and rng.random() < 0.7:
            return rng.choice(OPERATORS)
        return rng.choice(NAMES) if rng.random() < 0.4 else _other_text(rng, messages)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice([entry.number for entry in field.enum_type.values])
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice((0.0, -1.0, 1e38, 1e-38, float("inf"), float("nan"), 0.5))
    if kind == FieldDescriptor.CPPTYPE_INT32:
        return rng.choice((*NUMBERS, *range(25))) if rng.random() < 0.7 else (old or 0) + rng.choice((-1, 1))
    if kind in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64):
        near = (old or 0) + rng.choice((-1, 1, 2))
        value = rng.choice(LONG) if rng.random() < 0.6 else near
        return abs(value) if kind == FieldDescriptor.CPPTYPE_UINT64 else max(-(2**63), min(2**63 - 1, value))
    return None


def _other_text(rng, messages):
    """A name from somewhere else in the model."""
    _, message = rng.choice(messages)
    texts = [
        value if isinstance(value, str) else rng.choice(list(value))
        for field, value in message.ListFields()
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING and field.type == FieldDescriptor.TYPE_STRING
    ]
    return rng.choice(texts) if texts else None
