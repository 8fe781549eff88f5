"""Batches of texts of different lengths in OpenVINO GenAI, which pads at the beginning and goes on from the last row.

Decoders with `attention_mask` and `position_ids` take that as it is. `GroupQueryAttention` counts the tokens of a text
from its beginning, so padding has to be at the end: the model moves tokens to the front, and hidden states back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail_decoder.folder import LOGITS

if TYPE_CHECKING:
    import openvino as ov

    from dovetail_decoder.caches import Ports

IDS, MASK, POSITIONS = "input_ids", "attention_mask", "position_ids"


def why_one_text(ports: Ports) -> str:
    """Return why a decoder cannot take texts of different lengths in one batch; empty if it can."""
    roles = {port.role for port in ports.inputs}
    if MASK not in roles:
        return f"it has no input {MASK}, which tells padding from tokens"
    by_position = {port.by_position for port in ports.caches}
    if by_position == {False}:
        return "" if POSITIONS in roles else f"it has no input {POSITIONS}, and counts padding as tokens"
    if len(by_position) > 1:
        return "some of its caches have padding at the beginning, others at the end"
    logits = ports.output(LOGITS)
    of_last_row = logits is not None and logits.shape is not None and isinstance(logits.shape[1], int)
    return "it gives the scores of the last row alone, which may be padding" if of_last_row else ""


def pad_at_end(inputs: Mapping[str, ov.Output], logits: ov.Output) -> None:
    """Let a model whose inputs are padded at either end compute with padding at the end.

    Later calls of one token each have no padding among their own tokens, and the mask that the model sees has as many
    ones in front as a text has tokens.

    Args:
        inputs: The inputs of the model by role.
        logits: Its scores; their last row becomes that of the last token.
    """
    import numpy as np
    from openvino import opset13 as op

    readers = {role: list(port.get_target_inputs()) for role, port in inputs.items()}
    ids, mask = inputs[IDS], op.convert(inputs[MASK], "i32")
    one, zero = (op.constant(np.int32(number)) for number in (1, 0))

    def length(port: ov.Output) -> ov.Node:
        return op.gather(op.shape_of(port, "i32"), one, zero)

    def replace(role: str, value: ov.Node) -> None:
        for reader in readers[role]:
            reader.replace_source_output(op.convert(value, inputs[role].get_element_type()).output(0))

    new, steps = length(ids), op.range(zero, length(ids), one, "i32")
    ends = op.constant(np.array([np.iinfo(np.int32).max], np.int32))
    begin, ones = op.unsqueeze(op.negative(new), zero), op.constant(np.array([1], np.int32))
    own = op.slice(mask, begin, ends, ones, ones)  # of the tokens of this call
    count, total = (op.reduce_sum(numbers, one, keep_dims=True) for numbers in (own, mask))
    before = op.reduce_sum(op.convert(op.equal(op.cum_sum(own, one), zero), "i32"), one, keep_dims=True)
    forward, back = op.floor_mod(op.add(steps, before), new), op.floor_mod(op.add(steps, count), new)
    replace(IDS, op.gather(ids, forward, one, batch_dims=1))
    replace(MASK, op.less(op.range(zero, length(inputs[MASK]), one, "i32"), total))
    if POSITIONS in inputs:
        replace(POSITIONS, op.add(op.subtract(total, count), steps))
    last = _last_product(logits)
    last.replace_source_output(op.gather(last.get_source_output(), back, one, batch_dims=1).output(0))


def _last_product(logits: ov.Output) -> ov.Input:
    """Return where rows are moved back: at the product that computes scores, which has the fewest columns.

    OpenVINO GenAI looks for this product at the end of the model, to leave out all rows but the last.
    """
    at: ov.Input = logits.get_node().input(0)
    node = at.get_source_output().get_node()
    while node.get_type_name() == "Convert" or node.get_type_name() == "Add" and _is_constant(node.input_value(1)):
        node = node.input_value(0).get_node()
    if node.get_type_name() == "MatMul" and node.input_value(0).get_partial_shape().rank.get_length() == 3:
        return node.input(0)
    return at


def _is_constant(value: ov.Output) -> bool:
    node = value.get_node()
    while node.get_type_name() == "Convert":
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "Constant")
