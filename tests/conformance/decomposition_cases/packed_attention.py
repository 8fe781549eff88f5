"""Attention of tokens without padding: no kernels on CPUs, so compared with that of padded ones, and with formulas."""

import itertools
import math

import numpy as np

from ..decomposing import Case, kernel_results
from . import numbers

B, S, N, D = 3, 4, 2, 4
LENGTHS = (1, 2, 4)


def offsets():
    """Where tokens stand among padded ones, those of padding behind, and the sums of lengths."""
    inside = [entry * S + step for entry, length in enumerate(LENGTHS) for step in range(length)]
    outside = [place for place in range(B * S) if place not in inside]
    sums = np.cumsum([0, *LENGTHS]).astype(np.int32)
    return np.array(inside + outside, np.int32).reshape(B, S), sums


def padded(tokens):
    places = offsets()[0].reshape(-1)[: len(tokens)]
    whole = np.zeros((B * S, *tokens.shape[1:]), np.float32)
    whole[places] = tokens
    return whole.reshape(B, S, *tokens.shape[1:])


def taken(result):
    return result.reshape(B * S, -1)[offsets()[0].reshape(-1)[: sum(LENGTHS)]]


def _attention(input, weights, bias, token_offset, cumulative_sequence_length, attention_bias=None, **more):  # noqa: A002
    given = {"input": padded(input), "weights": weights, "bias": bias, "attention_bias": attention_bias}
    given = {name: value.astype(np.float32) for name, value in given.items() if value is not None}
    given["mask_index"] = np.array(LENGTHS, np.int32)
    return taken(kernel_results(Case("padded", "Attention", given, more))[0])


def _multi_head(
    query, token_offset, cumulative_sequence_length, key=None, value=None, bias=None, attention_bias=None, **more
):
    if key is None:
        query, key, value = (query[:, :, index].reshape(len(query), -1) for index in range(3))
    given = {"query": padded(query), "key": padded(key), "value": padded(value), "bias": bias}
    given |= {"attention_bias": attention_bias}
    given = {name: value.astype(np.float32) for name, value in given.items() if value is not None}
    given["key_padding_mask"] = np.array(LENGTHS, np.int32)
    return taken(kernel_results(Case("padded", "MultiHeadAttention", given, more))[0])


def packed():
    tokens, hidden = sum(LENGTHS), 6
    places, sums = offsets()
    for dtype, bias in itertools.product(("float32", "float16"), (None, (1, N), (B, 1))):
        common = {
            "token_offset": places,
            "cumulative_sequence_length": sums,
            "attention_bias": None if bias is None else numbers(*bias, S, S, seed=9, dtype=dtype),
        }
        inputs = {
            "input": numbers(tokens, hidden, dtype=dtype),
            "weights": numbers(hidden, 3 * N * D, seed=1, dtype=dtype),
            "bias": numbers(3 * N * D, seed=2, dtype=dtype),
        }
        opened = {"input": {0: "tokens"}, "token_offset": {0: "batch", 1: "length"}}
        yield Case(
            f"{dtype} {bias}", "PackedAttention", inputs | common, {"num_heads": N}, open=opened, expected=_attention
        )
        parts = {
            name: numbers(tokens, N * D, seed=seed, dtype=dtype) for seed, name in enumerate(("query", "key", "value"))
        }
        parts["bias"] = numbers(3 * N * D, seed=2, dtype=dtype)
        yield Case(
            f"{dtype} {bias}", "PackedMultiHeadAttention", parts | common, {"num_heads": N}, expected=_multi_head
        )
        one = {"query": numbers(tokens, N, 3, D, dtype=dtype)}
        yield Case(
            f"{dtype} {bias} packed", "PackedMultiHeadAttention", one | common, {"num_heads": N}, expected=_multi_head
        )


def _relative(bias_table, query_length, key_length, max_distance, is_bidirectional=0):
    """The buckets of T5; the schema has the table in column-major order, as its optimizer writes it."""
    by_head = bias_table.reshape(-1, len(bias_table))
    result = np.zeros((1, bias_table.shape[1], query_length.item(), key_length.item()))
    for row, column in np.ndindex(*result.shape[2:]):
        buckets, distance, start = len(bias_table), column - row, 0
        if is_bidirectional:
            buckets //= 2
            start = buckets if distance > 0 else 0
            distance = abs(distance)
        else:
            distance = max(-distance, 0)
        exact = buckets // 2
        if distance >= exact:
            far = math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact)
            distance = min(exact + int(far), buckets - 1)
        result[0, :, row, column] = by_head[:, start + distance]
    return result


def _gated(query_layer, query_bias, rel_pos, weight, bias, eco_a, num_heads):
    b, s, _ = query_layer.shape
    q = (query_layer + query_bias).reshape(b, s, num_heads, -1).transpose(0, 2, 1, 3)
    gates = (q @ weight + bias).reshape(b, num_heads, s, 2, -1).sum(-1)
    update, reset = (gate[..., None] for gate in np.moveaxis(1 / (1 + np.exp(-gates)), -1, 0))
    return (update * (reset * eco_a - 1) + 2) * rel_pos


def relative():
    for both, dtype in itertools.product((0, 1), ("float32", "float16")):
        inputs = {
            "bias_table": numbers(16, N, dtype=dtype),
            "query_length": np.array([19]),
            "key_length": np.array([19]),
        }
        attributes = {"max_distance": 15, "is_bidirectional": both}
        yield Case(f"{dtype} {both}", "RelativePositionBias", inputs, attributes, expected=_relative)
        inputs = {
            "query_layer": numbers(B, S, N * D, dtype=dtype),
            "query_bias": numbers(N * D, seed=1, dtype=dtype),
            "rel_pos": numbers(1, N, S, S, seed=2, dtype=dtype),
            "weight": numbers(D, 8, seed=3, dtype=dtype),
            "bias": numbers(8, seed=4, dtype=dtype),
            "eco_a": numbers(1, N, 1, 1, seed=5, dtype=dtype),
        }
        yield Case(f"{dtype} {both}", "GatedRelativePositionBias", inputs, {"num_heads": N}, expected=_gated)


CASES = [*packed(), *relative()]
