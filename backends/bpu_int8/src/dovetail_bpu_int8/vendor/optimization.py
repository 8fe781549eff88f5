"""The words of `optimization` in YAML files of hb_mapper and hb_compile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dovetail.text import did_you_mean

from dovetail_bpu_int8.bpu_requests import ALL, MODEL_OUTPUTS, on_bpu_request
from dovetail_bpu_int8.vendor.asked import Named, VendorSettings, names_in, origin
from dovetail_bpu_int8.vendor.calibration import ASYMMETRIC, set_observer
from dovetail_bpu_int8.vendor.tree import FileError, Node, Scalar

if TYPE_CHECKING:
    from dovetail.planning import NodeRequest

_OF_KIND = re.compile(r"set_(?P<kind>[A-Za-z][A-Za-z0-9]*)_(?P<side>input|output)_(?P<format>int8|int16)")
_SIDES = {"input": "in", "output": "out"}
_MOVED = "Softmax"  # operator that the tool moves to the BPU if its ports are set to int8

WORDS = {
    "set_model_output_int8": "the outputs of the model leave the BPU in int8, not in the 32 bits of their sums",
    "set_model_output_int16": "the outputs of the model leave the BPU in int16",
    "set_all_nodes_int16": "every node that can is in int16",
    "bias_correction": "mean errors become biases, as with --refine bias",
    "run_fast": "calibration on random numbers",
    "asymmetric": "activations have a zero point",
    "lstm_batch_last": "",
}
"""Words without an operator, with a note about their effect here; empty for no note."""

_FORMS = "set_<Operator>_input_int16, set_<Operator>_output_int16"
_NOTES = {
    "lstm_batch_last": (
        "it changes how the BPU computes an LSTM, and no numbers",
        "it takes effect where the vendor's tool compiles the files that are written",
    ),
}


def read_optimization(node: Node, asked: VendorSettings) -> None:
    """Read the words: global ones first, then the more specific ones for operators.

    Raises:
        FileError: A word is unknown, or not supported on this BPU.
    """
    words = list(names_in(node, ",;"))
    kinds = [(word, found) for word in words if (found := _OF_KIND.fullmatch(word.raw)) and word.raw not in WORDS]
    of_kind = {id(word) for word, _ in kinds}
    for word in words:
        if id(word) not in of_kind:
            _plain(word, asked)
    moved: dict[str, NodeRequest] = {}
    for word, found in kinds:
        key, kind = f"optimization {word.raw}", found["kind"]
        selector = f"type:{kind}"
        named = Named(kind, word, key)
        asked.operators.append(named)
        asked.request(selector, word, key, found["format"], _SIDES[found["side"]])
        if kind == _MOVED and found["format"] == "int8":
            moved[selector] = on_bpu_request(selector, origin(word, key))
    asked.requests += moved.values()
    outputs = [word for word in words if word.raw.startswith("set_model_output_")]
    for word in outputs[-1:]:
        asked.request(ALL, word, f"optimization {word.raw}", word.raw.rpartition("_")[2], MODEL_OUTPUTS)


def _plain(word: Scalar, asked: VendorSettings) -> None:
    key = f"optimization {word.raw}"
    if word.raw not in WORDS:
        near = did_you_mean(word.raw, WORDS)
        raise FileError(word, f"optimization: unknown word '{word.raw}'{near}", f"it has {', '.join(WORDS)}, {_FORMS}")
    if word.raw == "set_all_nodes_int16":
        asked.request(ALL, word, key, "int16")
    elif word.raw == "bias_correction":
        asked.refine = ("bias",)
    elif word.raw == "asymmetric":
        asked.backend |= ASYMMETRIC
    elif word.raw == "run_fast":
        set_observer("skip", 1.0, word, asked, key)
    elif word.raw in _NOTES:
        why, suggest = _NOTES[word.raw]
        asked.note(f"{word.where}, {key}: {why}", suggest)
