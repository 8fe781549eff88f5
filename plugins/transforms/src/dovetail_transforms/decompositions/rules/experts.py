"""Mixtures of experts, in floats and in few bits.

Standard ONNX has no product with a part of the weights per token, so all experts compute all tokens, and a token adds
up those that its router chose: with E experts of which k are chosen, E / k times the products of the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail.ir import dtype_of

from dovetail_transforms.decompositions.rules.activations import gated, sigmoid_weighted, tanh_gelu
from dovetail_transforms.decompositions.rules.weights import dequantized_rows, unpacked

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula


def _all_shares(op: Formula, chosen: ir.Value, shares: ir.Value, like: ir.Value) -> ir.Value:
    """Return the shares of all experts in every token, 0 for those that are not chosen, [experts, tokens, 1]."""
    nothing = op.Mul(like, op.number(0, like))
    return op.unsqueeze(op.Transpose(op.ScatterElements(nothing, chosen, shares, axis=1), perm=[1, 0]), 2)


def _chosen(op: Formula, router: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the largest of the router's scores, and the experts that they belong to, [tokens, k]."""
    scores, experts = op.TopK(router, op.integers([op.attribute("k")], "k"), axis=1, outputs=2)
    return scores, experts


def _normalized(op: Formula, shares: ir.Value) -> ir.Value:
    return op.Div(shares, op.total(shares, 1))


def _expert_outputs(
    op: Formula, x: ir.Value, first: ir.Value, second: ir.Value, third: ir.Value | None
) -> tuple[ir.Value, ir.Value]:
    """Return what every expert computes of every token, [experts, tokens, hidden], and the tokens, [tokens, hidden].

    Args:
        op: The formula.
        x: The input of the node.
        first: Weights, [experts, inner, hidden]; in pairs of gates and others if both are fused.
        second: Weights, [experts, hidden, inner].
        third: The weights that a gate multiplies, like those of `first`.
    """
    hidden = op.required_extent(first, 2, "size of its tokens")
    tokens = op.reshape(op.wide(x), -1, hidden)

    def product(value: ir.Value, weight: ir.Value, bias: str) -> ir.Value:
        made = op.MatMul(value, op.Transpose(weight, perm=[0, 2, 1]))
        given = op.wide_or_none(bias)
        return made if given is None else op.Add(made, op.unsqueeze(given, 1))

    each = op.unsqueeze(tokens, 0)
    inner = product(each, first, "fc1_experts_bias")
    other = None if third is None else product(each, third, "fc3_experts_bias")
    return product(_activated(op, inner, other), second, "fc2_experts_bias"), tokens


def _activated(op: Formula, x: ir.Value, other: ir.Value | None) -> ir.Value:
    name, fusion = op.attribute("activation_type"), op.attribute("swiglu_fusion")
    if name == "swiglu":
        return _swiglu(op, x, other, fusion)
    simple = {"relu": op.Relu, "identity": lambda value: value}
    known = simple | {"gelu": lambda value: tanh_gelu(op, value), "silu": lambda value: sigmoid_weighted(op, value)}
    if name not in known:
        op.refuse(f"its activation '{name}' has no kernel on CPUs, and no formula that was checked")
    result = known[name](x)
    return result if other is None else op.Mul(result, other)


def _swiglu(op: Formula, x: ir.Value, other: ir.Value | None, fusion: int) -> ir.Value:
    if fusion:
        width = op.required_extent(x, 2, "inner size of its experts")
        parts = op.split(x, 2, [width // 2] * 2) if fusion == 2 else [op.slice(x, 2, i, width, 2) for i in (0, 1)]
        gate, up = parts
    elif other is None:
        op.refuse("it has no third weights for its gates")
    else:
        gate, up = x, other
    op.refuse_if(bool(op.attribute("swiglu_limit_after_activation")), "it bounds gates after the activation")
    alpha, beta = op.attribute("activation_alpha"), op.attribute("activation_beta")
    return op.Mul(*gated(op, gate, up, alpha, beta, op.attribute("swiglu_limit", None)))


def _summed(op: Formula, outputs: ir.Value, shares: ir.Value) -> ir.Value:
    x = op.required("input")
    result = op.total(op.Mul(outputs, shares), 0, keepdims=0)
    return op.cast(op.shaped_like(result, x), dtype_of(x))


def _mixture(op: Formula) -> ir.Value:
    """The sum of the chosen experts by the softmax of the router over all of them, or over the chosen ones.

    The activation gelu is that of a tanh, as runs show.
    """
    op.refuse_if(bool(op.attribute("use_sparse_mixer")), "its sparse mixer is not documented")
    router, third = op.wide(op.required("router_probs")), op.wide_or_none("fc3_experts_weights")
    first, second = op.wide(op.required("fc1_experts_weights")), op.wide(op.required("fc2_experts_weights"))
    outputs, _ = _expert_outputs(op, op.required("input"), first, second, third)
    _, experts = _chosen(op, router)
    shares = op.GatherElements(op.Softmax(router, axis=1), experts, axis=1)
    shares = _normalized(op, shares) if op.attribute("normalize_routing_weights") else shares
    return _summed(op, outputs, _all_shares(op, experts, shares, router))


def _weight(op: Formula, which: int) -> ir.Value | None:
    """Return the weights of a layer of all experts, [experts, outputs, inputs]."""
    packed = op.input(f"fc{which}_experts_weights")
    if packed is None:
        return None
    bits = op.attribute(f"fc{which}_expert_weight_bits", None) or op.attribute("expert_weight_bits")
    op.refuse_if(bits not in (2, 4, 8), f"its weights have {bits} bits")
    experts, rows, width = (op.required_extent(packed, axis, "shape of its weights") for axis in range(3))
    columns = width * 8 // bits
    block, zero = op.attribute("block_size", 0) or 0, op.input(f"fc{which}_zero_points")
    if zero is not None and op.rank(zero) == 2:  # packed along the rows
        zero = op.wide(op.slice(unpacked(op, zero, bits), 1, 0, rows))
    shape = experts * rows, columns
    weight = dequantized_rows(op, packed, op.required(f"fc{which}_scales"), zero, shape, block or columns, bits)
    return op.reshape(weight, experts, rows, columns)


def _quantized_mixture(op: Formula) -> ir.Value:
    """The sum of experts of few bits by the softmax over the chosen ones, or by weights that the router gives apart.

    Unlike MoE, the kernel takes the softmax of the chosen scores alone whatever `normalize_routing_weights` says, which
    concerns `router_weights` only. It reads weights as they are documented for `weights_prepacked = 0` with the default
    of -1, too. With 8 bits, or `accuracy_level` 4, it may round tokens to 8 bits; here they stay in float32.
    """
    op.refuse_if(op.attribute("quant_type") != "int", f"its weights are quantized as {op.attribute('quant_type')}")
    op.refuse_if(op.attribute("weights_prepacked") == 1, "its weights are laid out for one kernel")
    op.refuse_if(bool(op.attribute("use_sparse_mixer")), "its sparse mixer is not documented")
    router = op.wide(op.required("router_probs"))
    first, second, third = (_weight(op, which) for which in (1, 2, 3))
    assert first is not None and second is not None, "the schema demands them"
    outputs, _ = _expert_outputs(op, op.required("input"), first, second, third)
    scores, experts = _chosen(op, router)
    given = op.wide_or_none("router_weights")
    if given is None:
        shares = op.Softmax(scores, axis=1)
    else:
        shares = op.GatherElements(given, experts, axis=1)
        shares = _normalized(op, shares) if op.attribute("normalize_routing_weights") else shares
    return _summed(op, outputs, _all_shares(op, experts, shares, router))


RULES: Mapping = {"com.microsoft.MoE": _mixture, "com.microsoft.QMoE": _quantized_mixture}
