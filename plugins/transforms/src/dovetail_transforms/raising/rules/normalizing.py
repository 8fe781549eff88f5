"""Normalizations and dropout: statistics, modes of training, scales per group."""

from __future__ import annotations

from dovetail_transforms.raising.writer import NodeNotRaised, Writer

_ONE_OUTPUT = "with more than one output it is in training mode, and its results are those of training"


def _outputs(op: Writer) -> int:
    """Return the number of outputs that are named."""
    return sum(1 for name in op.node.output if name)


def _training_by_outputs(op: Writer) -> None:
    """Leave the mode to the number of outputs, as opset 7 does: one is inference, whatever `is_test` says."""
    if op.attribute("is_test", 0) and _outputs(op) > 1:
        raise NodeNotRaised("it has outputs of training, and is_test says inference")
    op.keep()


def _statistics_per_activation(op: Writer) -> None:
    """Normalize by statistics of every activation (`spatial` is 0), whose shape is that of one sample."""
    if op.attribute("spatial", 1):
        op.keep()
        return
    if _outputs(op) > 1:
        raise NodeNotRaised(_ONE_OUTPUT)
    x, scale, bias, mean, variance = op.node.input
    epsilon = op.number_like(op.attribute("epsilon", 1e-5), variance, "epsilon")
    deviation = op.add("Sqrt", op.add("Add", variance, epsilon, hint="shifted"), hint="deviation")
    normal = op.add("Div", op.add("Sub", x, mean, hint="centered"), deviation, hint="normal")
    op.finish("Add", op.add("Mul", normal, scale, hint="scaled"), bias)


def _training_mode(op: Writer) -> None:
    """Express with an attribute what the number of outputs expressed."""
    outputs = list(op.node.output)
    if any(outputs[3:]):
        raise NodeNotRaised("it has no outputs for the mean and the variance of the batch")
    while len(outputs) > 1 and not outputs[-1]:
        outputs.pop()
    del op.node.output[:]
    op.node.output.extend(outputs)
    if len(outputs) > 1:
        op.write(training_mode=1)
    op.keep()


def _inference_only(op: Writer) -> None:
    """Keep a dropout of inference; that of training has no form from opset 7 to 11."""
    if not op.attribute("is_test", 0):
        raise NodeNotRaised("is_test is 0, so that it drops values at random; set it to 1 for inference")
    op.keep()


def _mask_of_booleans(op: Writer) -> None:
    """Convert the mask, which is of Booleans from opset 10 on, to the type of the input."""
    if len(op.node.output) > 1 and op.node.output[1]:
        mask, kind = op.node.output[1], op.element_type(op.node.input[0])
        op.node.output[1] = op.fresh("mask")
        op.keep()
        op.add_named(mask, "Cast", op.node.output[1], to=kind)
        return
    op.keep()


def _scales_per_channel(op: Writer) -> None:
    """Repeat the scale and the bias of each group for its channels, as opset 21 has them."""
    x, *per_group = op.node.input
    groups = op.attribute("num_groups")
    extents = op.values.extents(x)
    channels = extents[1] if extents is not None and len(extents) > 1 else None
    if channels is not None:
        repeated = op.integers([groups, channels // groups], "repeated")
    else:
        width = op.add("Gather", op.add("Shape", x, hint="shape"), op.integers([1], "axis"), hint="channels")
        width = op.add("Div", width, op.integers([groups], "groups"), hint="channels_of_group")
        repeated = op.add("Concat", op.integers([groups], "rows"), width, axis=0, hint="repeated")
    column, all_channels = op.integers([groups, 1], "column"), op.integers([-1], "all")
    for index, value in enumerate(per_group, 1):
        wide = op.add("Expand", op.add("Reshape", value, column, hint="column"), repeated, hint="expanded")
        op.node.input[index] = op.add("Reshape", wide, all_channels, hint="per_channel")
    op.keep()


RULES = {
    "inference-only": _inference_only,
    "mask-of-booleans": _mask_of_booleans,
    "scales-per-channel": _scales_per_channel,
    "statistics-per-activation": _statistics_per_activation,
    "training-by-outputs": _training_by_outputs,
    "training-mode": _training_mode,
}
