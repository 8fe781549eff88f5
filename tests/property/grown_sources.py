"""Random models as older and other exporters write them: opsets of old, functions with defaults, inputs with defaults.

A model of `grown_models.py` is grown in an opset from 7 on, with steps that only old opsets have. Runs of its nodes are
then moved into local functions, some of whose attributes become attributes of the function, with a default or given by
the call; and some weights become inputs that have a default, of which some get another value.
"""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .grown import Graph, Impossible, captured, run
from .grown_models import Grown, finished, inputs_of, step_of
from .grown_steps import STEPS, drawn

DOMAIN = "exporter"


def grown_source(seed):
    """The model of this seed; `kinds` says what is in it: `old`, `function`, `default`."""
    for attempt in range(20):
        rng = np.random.default_rng([seed, 47, attempt])
        try:
            made = _grown(seed, rng)
            expected = run(made.model, made.feeds)
            made = with_defaults(with_functions(made, rng), rng)
            found = run(made.model, made.feeds)
        except Exception:  # what ONNX Runtime does not run proves nothing
            continue
        if "default" in made.kinds or all(map(np.array_equal, found, expected)):
            return made
    raise AssertionError(f"seed {seed} gives no model that ONNX Runtime runs")


def _grown(seed, rng):
    graph = Graph(rng, int(rng.choice([7, 8, 9, 10, 10, 11, 12, 13, 17, 18, 19, 20])), np.float32)
    open_extents = inputs_of(graph)
    steps = STEPS | {step.__name__: step for step in OLD_STEPS}
    wanted = int(rng.integers(3, 14))
    for _ in range(6 * wanted):
        if len(graph.nodes) >= wanted:
            break
        name = rng.choice([step.__name__ for step in OLD_STEPS]) if rng.random() < 0.3 else drawn(rng)
        step_of(graph, steps[name])
    kinds = {"old"} if graph.opset < 13 else set()
    return finished(seed, graph, open_extents, kinds)


def _any(g, rank=None):
    """A value of floats."""
    names = g.values(lambda array: array.dtype == g.float and array.ndim and (rank is None or array.ndim == rank))
    if not names:
        raise Impossible("nothing to start from")
    return names[int(g.rng.integers(len(names)))]


def old_resize(g):
    """Upsample and Resize of opset 7 to 10, up and down."""
    x = _any(g, 4)
    mode = str(g.rng.choice(["nearest", "linear"]))
    scales = [1.0, 1.0, *map(float, g.rng.choice([0.5, 0.6, 1.0, 1.7, 2.0], 2))]
    if g.opset < 9:
        g.add("Upsample", x, mode=mode, scales=[max(scale, 1.0) for scale in scales])
    elif g.opset == 9:
        g.add("Upsample", x, g.weight(np.array([max(scale, 1.0) for scale in scales], np.float32)), mode=mode)
    elif g.opset == 10:
        g.add("Resize", x, g.weight(np.array(scales, np.float32)), mode=mode)
    else:
        raise Impossible("newer")


def old_softmax(g):
    """A softmax of all axes from one on."""
    x = _any(g)
    kind = str(g.rng.choice(["Softmax", "LogSoftmax", "Hardmax"]))
    g.add(kind, x, axis=int(g.rng.integers(g.arrays[x].ndim)))


def old_attributes(g):
    """What was an attribute before it was an input."""
    x = _any(g)
    rank = g.arrays[x].ndim
    axis = int(g.rng.integers(rank))
    kind = str(
        g.rng.choice(["Slice", "Clip", "Pad", "Split", "TopK", "ReduceMean", "ReduceSum", "Unsqueeze", "Dropout"])
    )
    if kind == "Slice":
        g.add(kind, x, axes=[axis], starts=[0], ends=[max(1, g.arrays[x].shape[axis] - 1)])
    elif kind == "Clip":
        g.add(kind, x, min=-0.5)
    elif kind == "Pad":
        g.add(kind, x, pads=[int(i == axis) for i in range(2 * rank)], value=0.25)
    elif kind == "Split":
        if g.arrays[x].shape[axis] < 2:
            raise Impossible("nothing to split")
        g.add(kind, x, outputs=2, axis=axis, split=[1, g.arrays[x].shape[axis] - 1])
    elif kind == "TopK":
        g.add(kind, x, outputs=2, k=1, axis=axis)
    elif kind == "Unsqueeze":
        g.add(kind, x, axes=[axis])
    elif kind == "Dropout":
        g.add(kind, x, ratio=0.4)
    else:
        g.add(kind, x, axes=[axis], keepdims=int(g.rng.random() < 0.5))


def group_normalization(g):
    """One scale for each group, as opset 18 has them."""
    x = _any(g)
    channels = g.arrays[x].shape[1] if g.arrays[x].ndim > 2 else 0
    groups = next((n for n in (3, 2, 1) if channels and channels % n == 0), 0)
    if not groups or not 18 <= g.opset < 21:
        raise Impossible("other versions")
    g.add("GroupNormalization", x, g.normal(groups, scale=1.0), g.normal(groups, scale=1.0), num_groups=groups)


OLD_STEPS = (old_resize, old_softmax, old_attributes, group_normalization)


def with_functions(made, rng):
    """Move runs of nodes into local functions."""
    model = onnx.ModelProto()
    model.CopyFrom(made.model)
    if rng.random() < 0.4:
        return made
    nodes, calls = list(model.graph.node), []
    opsets = [*model.opset_import, helper.make_opsetid(DOMAIN, 1)]
    outputs = {value.name for value in model.graph.output}
    while nodes:
        count = int(rng.integers(1, 5))
        run_of, nodes = nodes[:count], nodes[count:]
        if rng.random() < 0.5:
            calls += run_of
            continue
        inside = {name for node in run_of for name in node.output}
        given = sorted(set().union(*map(captured, run_of)) - inside)
        after = outputs.union(*map(captured, nodes)) if nodes else outputs
        results = [name for node in run_of for name in node.output if name in after]
        name = f"F{len(model.functions)}"
        held, said = _attributes(run_of, rng)
        function = helper.make_function(DOMAIN, name, given, results, run_of, opsets, [], [])
        function.attribute_proto.extend(held)
        model.functions.append(function)
        call = helper.make_node(name, given, results, f"call_{name}", domain=DOMAIN)
        call.attribute.extend(said)
        calls.append(call)
    if not model.functions:
        return made
    del model.graph.node[:]
    model.graph.node.extend(calls)
    model.opset_import.add(domain=DOMAIN, version=1)
    return Grown(made.seed, model, made.feeds, made.kinds | {"function"})


def _attributes(nodes, rng):
    """Make attributes of nodes those of their function; returns its defaults, and what the call gives instead."""
    held, said = [], []
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.TENSOR) or rng.random() < 0.4:
                continue
            own = onnx.AttributeProto()
            own.CopyFrom(attribute)
            own.name = f"{attribute.name}_{len(held)}"
            held.append(own)
            if (
                own.type == onnx.AttributeProto.FLOAT and rng.random() < 0.5
            ):  # the call gives it, the default is another
                given = onnx.AttributeProto()
                given.CopyFrom(own)
                said.append(given)
                own.f += 0.125
            name, kind = attribute.name, attribute.type
            attribute.Clear()
            attribute.name, attribute.type, attribute.ref_attr_name = name, kind, own.name
    return held, said


def with_defaults(made, rng):
    """Make inputs of some weights, with the weight as the default; the data gives some of them another value."""
    model, feeds = onnx.ModelProto(), dict(made.feeds)
    model.CopyFrom(made.model)
    if rng.random() < 0.5:
        return made
    floats = [one for one in model.graph.initializer if one.data_type == onnx.TensorProto.FLOAT and one.dims]
    chosen = [one for one in floats if rng.random() < 0.4]
    for tensor in chosen:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        if rng.random() < 0.6:
            array = numpy_helper.to_array(tensor)
            feeds[tensor.name] = (array * rng.uniform(0.5, 1.0, array.shape)).astype(array.dtype)
    return Grown(made.seed, model, feeds, made.kinds | {"default"}) if chosen else made
