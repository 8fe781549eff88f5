"""A fact: what a weight takes of the memory of the accelerator."""


def weight_bytes(node):
    """The size of the weight in int8, in bytes; None if it is no constant, and so cannot be told."""
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    return None if weight is None or weight.const_value is None else weight.const_value.size
