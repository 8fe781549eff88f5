"""Settings of single nodes: `node_info`, `set_node_data_type`, `run_on_cpu` and `run_on_bpu`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

from dovetail.text import did_you_mean

from dovetail_bpu_int8.vendor.asked import Named, VendorSettings, names_in
from dovetail_bpu_int8.vendor.tree import Entries, FileError, Items, Node, Scalar, type_name

_KEYS = ("ON", "InputType", "OutputType")
_INPUT = re.compile(r"InputType(\d+)")
_OUTPUT = re.compile(r"OutputType\d+")
PORTS = {"InputType": "in", "OutputType": "out"}
"""Ports by the key of `node_info` that sets them."""


def read_run_on(node: Node, key: str, where: str, asked: VendorSettings) -> None:
    """Read a list of nodes for the BPU or the CPU.

    Args:
        node: Names separated by semicolons, or a list.
        key: `run_on_bpu` or `run_on_cpu`.
        where: `BPU` or `CPU`.
        asked: The settings of the file, to update.
    """
    for word in names_in(node):
        named = Named(word.raw, word, key)
        other = next((one for one, there in asked.placed if one.selector == word.raw and there != where), None)
        if other is not None and other.key.startswith("run_on_"):
            raise FileError(word, f"'{word.raw}' is in {other.key} and in {key}", "leave it out of one of them")
        asked.nodes.append(named)
        asked.place(named, where)


def read_node_info(node: Node, key: str, asked: VendorSettings) -> None:
    """Read `node_info` in either form: a mapping by node, or `node:int16;other:int16` for the outputs of nodes.

    Raises:
        FileError: A key or a value is unknown, or not supported on this BPU.
    """
    if isinstance(node, Scalar):
        for word, format_ in _pairs(node, key):
            asked.nodes.append(Named(word, node, key))
            _format(format_, "OutputType", word, node, key, asked)
        return
    if isinstance(node, Items):
        raise FileError(node, f"{key}: {type_name(node)} stands where nodes with what is asked of them are expected")
    for name, content in cast("Entries", node):
        named = Named(name.raw, name, key)
        asked.nodes.append(named)
        if isinstance(content, Scalar) and not content.is_null:
            _format(content.raw, "OutputType", name.raw, content, key, asked)
            continue
        if not isinstance(content, Entries):
            raise FileError(content, f"{key}: '{name.raw}' needs some of {', '.join(_KEYS)}")
        _read_one(named, content, asked)


def _read_one(named: Named, content: Entries, asked: VendorSettings) -> None:
    on = content.get("ON")
    if on is not None:
        where = on.text("ON").upper()
        if where not in ("BPU", "CPU"):
            raise FileError(on, f"{named.key}: ON is BPU or CPU, not '{on.text('ON')}'")
        asked.place(named, where)
    for key, value in content:
        if key.raw == "ON":
            continue
        if key.raw not in PORTS and not _INPUT.fullmatch(key.raw):
            hint = (
                "OutputType is that of all outputs" if _OUTPUT.fullmatch(key.raw) else "InputType0 is the first input"
            )
            near = did_you_mean(key.raw, (*_KEYS, "InputType0"))
            raise FileError(key, f"{named.key}: unknown key '{key.raw}' of '{named.selector}'{near}", hint)
        if on is not None and where == "CPU":
            raise FileError(
                value,
                f"{named.key}: '{named.selector}' is on the CPU, which computes in float32, and {key.raw} asks for "
                f"{value.text(key.raw)}",
                "write ON: BPU, or leave the type out",
            )
        _format(value.text(key.raw), key.raw, named.selector, value, named.key, asked)


def _format(written: str, port: str, selector: str, place: Node, key: str, asked: VendorSettings) -> None:
    format_ = written.strip().lower()
    known = [one for one in asked.march.formats if one != "float32"]
    if format_ not in ("int8", "int16", "float16"):
        near = did_you_mean(written, known)
        raise FileError(place, f"{key}: '{written}' is no type of '{selector}'{near}", f"write {' or '.join(known)}")
    if format_ == "int16" and format_ not in asked.march.formats:
        why = f"{place.where}, {key} {port}: march '{asked.march.name}' has no int16, so '{selector}' stays in int8"
        asked.note(why, "leave the type out; or compile for another march")
        return
    ports = PORTS.get(port) or f"in{port.removeprefix('InputType')}"
    asked.request(selector, place, f"{key} {port}", format_, ports)


def _pairs(node: Scalar, key: str) -> Iterator[tuple[str, str]]:
    for word in names_in(node):
        name, colon, format_ = word.raw.rpartition(":")
        if not colon or not name.strip():
            raise FileError(node, f"{key}: '{word.raw}' is not NODE:int16", "or write a mapping: {NODE: {ON: BPU}}")
        yield name.strip(), format_.strip()
