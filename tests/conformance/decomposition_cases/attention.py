"""Attention with as many keys as queries have heads."""

import itertools

import numpy as np

from ..decomposing import Case
from . import numbers, whole


def reference(q, k, v, added=0.0):
    """Attention of heads, [batch, heads, length, size], and its scores."""
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]) + added
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    result = weights @ v
    return result.transpose(0, 2, 1, 3).reshape(len(q), q.shape[2], -1)


def heads(x, number):
    return x.reshape(*x.shape[:2], number, -1).transpose(0, 2, 1, 3)


B, S, T, N, D = 2, 3, 5, 2, 4  # batch, queries, keys, heads, size


def masks(queries, keys, batch=B):
    """Masks of every rank that excludes some keys, and never all."""
    lengths = np.array([keys - 1, keys][:batch], np.int32)
    two = np.ones((batch, keys), np.int32)
    two[0, 0] = 0
    three = np.ones((batch, queries, keys), np.int32)
    three[:, 0, -1] = three[0, -1, 0] = 0
    return {"none": None, "lengths": lengths, "keys": two, "queries": three}


def multi_head():
    for dtype, form, mask, bias, past, causal in itertools.product(
        ("float32", "float16"),
        ("plain", "cross"),
        ("none", "lengths", "keys", "queries"),
        (None, (1, 1), (B, N)),
        (0, 3),
        (0, 1),
    ):
        if dtype == "float16" and (mask == "keys") != (bias is None):
            continue
        if form != "plain" and past:
            continue
        keys = past + S if past else T
        length = S if past else T
        inputs = {"query": numbers(B, S, N * D, dtype=dtype)}
        if form == "cross":
            inputs |= {
                name: numbers(B, N, length, D, seed=seed, dtype=dtype) for seed, name in ((1, "key"), (2, "value"))
            }
        else:
            inputs["key"] = numbers(B, length, N * D, seed=1, dtype=dtype)
            inputs["value"] = numbers(B, length, N * (D + 2 * (not past)), seed=2, dtype=dtype)
        if past:
            inputs |= {
                name: numbers(B, N, past, D, seed=seed, dtype=dtype)
                for seed, name in ((3, "past_key"), (4, "past_value"))
            }
        inputs["key_padding_mask"] = masks(S, keys)[mask]
        inputs["attention_bias"] = None if bias is None else numbers(*bias, S, keys, seed=5, dtype=dtype)
        outputs = ["output", "present_key", "present_value"] if form == "plain" else ["output"]
        yield Case(
            f"{dtype} {form} mask {mask} bias {bias} past {past} causal {causal}",
            "MultiHeadAttention",
            inputs,
            {"num_heads": N, "unidirectional": causal, **({"scale": 0.3} if bias else {})},
            outputs,
            open={"query": {0: "batch", 1: "length"}, "past_key": {2: "past"}, "past_value": {2: "past"}}
            if mask != "lengths"
            else {"query": {1: "length"}},
            through_float32=dtype == "float16",
        )


def multi_head_more():
    q, k, v = (numbers(B, S, N * D, seed=seed) for seed in range(3))
    bias = numbers(3 * N * D, seed=6)
    yield Case("bias", "MultiHeadAttention", {"query": q, "key": k, "value": v, "bias": bias}, {"num_heads": N})
    cross = {"query": q, "key": numbers(B, N, T, D, seed=1), "value": numbers(B, N, T, D, seed=2), "bias": bias}
    yield Case("bias of cross attention", "MultiHeadAttention", cross, {"num_heads": N})
    half = {"query": q.astype(np.float16), "key": k.astype(np.float16), "value": v.astype(np.float16)}
    yield Case(
        "bias half",
        "MultiHeadAttention",
        half | {"bias": bias.astype(np.float16)},
        {"num_heads": N},
        through_float32=True,
    )

    def of_three(query, num_heads):
        return reference(*(query[:, :, :, index].transpose(0, 2, 1, 3) for index in range(3)))

    def of_two(query, key, num_heads):
        return reference(heads(query, N), *(key[:, :, :, index].transpose(0, 2, 1, 3) for index in range(2)))

    for dtype in ("float32", "float16"):  # no kernel on CPUs reads what is packed: compared with the formula
        packed, keys = numbers(B, S, N, 3, D, dtype=dtype), numbers(B, T, N, 2, D, dtype=dtype)
        yield Case(f"packed {dtype}", "MultiHeadAttention", {"query": packed}, {"num_heads": N}, expected=of_three)
        inputs = {"query": numbers(B, S, N * D, dtype=dtype), "key": keys}
        yield Case(f"packed keys {dtype}", "MultiHeadAttention", inputs, {"num_heads": N}, expected=of_two)
    yield Case("scores", "MultiHeadAttention", {"query": q, "key": k, "value": v}, {"num_heads": N}, ["output", "qk"])
    inputs = {
        "query": q,
        "key": k,
        "value": v,
        "key_padding_mask": masks(S, S)["keys"],
        "attention_bias": numbers(1, 1, S, S),
    }
    yield Case("masked scores", "MultiHeadAttention", inputs, {"num_heads": N, "unidirectional": 1}, ["output", "qk"])
    mask = np.zeros((B, S), np.int32)
    mask[1, 1] = 1
    for causal in (0, 1):
        inputs = {"query": q, "key": k, "value": v, "key_padding_mask": mask}
        yield Case(f"all masked {causal}", "MultiHeadAttention", inputs, {"num_heads": N, "unidirectional": causal})
        filled = {"num_heads": N, "unidirectional": causal, "mask_filter_value": -2.0}
        yield Case(f"filled {causal}", "MultiHeadAttention", inputs, filled)
    sums = np.array([2, 3, 0, 2, 5, 0, 2, 5], np.int32)
    inputs = {"query": q, "key": k, "value": v, "key_padding_mask": sums}
    yield Case("lengths and sums", "MultiHeadAttention", inputs, {"num_heads": N}, through_float32=False)


def with_weights():
    hidden = 6
    for dtype, mask, past, causal, bias, other in itertools.product(
        ("float32", "float16"), ("none", "lengths", "spans", "keys", "queries"), (0, 4), (0, 1), (False, True), (0, 1)
    ):
        if past and (other or bias) or dtype == "float16" and (bias or other):
            continue
        size = 3 if other else D
        inputs = {
            "input": numbers(B, S, hidden, dtype=dtype),
            "weights": numbers(hidden, N * (2 * D + size), seed=1, dtype=dtype),
            "bias": numbers(N * (2 * D + size), seed=2, dtype=dtype),
            "past": numbers(2, B, N, past, D, seed=3, dtype=dtype) if past else None,
            "attention_bias": numbers(1, N, S, S + past, seed=4, dtype=dtype) if bias else None,
        }
        spans = np.array([S + past, S + past - 1, 1, 0], np.int32)
        inputs["mask_index"] = spans if mask == "spans" else masks(S, S + past)[mask]
        attributes = {"num_heads": N, "unidirectional": causal}
        if other:
            attributes["qkv_hidden_sizes"] = [N * D, N * D, N * size]
        yield Case(
            f"{dtype} mask {mask} past {past} causal {causal} bias {bias} values {size}",
            "Attention",
            inputs,
            attributes,
            ["output", "present"] if past else ["output"],
            ["weights", "bias"],
            {"input": {1: "length"}, "past": {3: "past"}},
            through_float32=dtype == "float16",
        )
    whole_or_spans = {"lengths": masks(S, S)["lengths"], "spans": np.array([S, S - 1, 1, 0], np.int32)}
    for mask, held in whole_or_spans.items():
        inputs = {
            "input": numbers(B, S, hidden),
            "weights": numbers(hidden, 3 * N * D, seed=1),
            "bias": numbers(3 * N * D, seed=2),
            "mask_index": held,
        }
        opened = {"input": {0: "rows", 1: "length"}, "mask_index": {0: "masked"}}
        yield Case(f"open mask {mask}", "Attention", inputs, {"num_heads": N}, ["output"], ["weights", "bias"], opened)
    inputs = {"input": numbers(B, S, hidden), "weights": numbers(hidden, 3 * N * D), "mask_index": None}
    yield Case("no bias", "Attention", inputs, {"num_heads": N, "scale": 0.2}, constants=["weights"])
    inputs["mask_index"] = np.zeros((B, S), np.int32)
    yield Case("all masked", "Attention", inputs, {"num_heads": N, "unidirectional": 1}, constants=["weights"])


def _decoded(query, past_key, past_value, key=None, value=None, mask_index=None, attention_bias=None, num_heads=N, **_):
    key, value, query = (
        (np.split(query, 3, axis=2)[index] for index in (1, 2, 0)) if key is None else (key, value, query)
    )
    present = [np.concatenate([past, heads(new, N)], 2) for past, new in ((past_key, key), (past_value, value))]
    added = 0 if mask_index is None else np.where(mask_index > 0, 0, -10000.0)[:, None, None]
    return [reference(heads(query, N), *present, added + (0 if attention_bias is None else attention_bias)), *present]


def decoder():
    """The kernel on CPUs wants one buffer for past and present, and nothing packed; others compare with the formula."""
    for mask, bias, shared, packed in itertools.product((False, True), (False, True), (False, True), (False, True)):
        if shared and packed:
            continue
        past, longest = 4, 7
        rows = longest if shared else past
        inputs = {
            "query": numbers(B, 1, 3 * N * D if packed else N * D),
            "past_key": numbers(B, N, rows, D),
            "past_value": numbers(B, N, rows, D, seed=1),
        }
        if not packed:
            inputs |= {name: numbers(B, 1, N * D, seed=seed) for seed, name in ((2, "key"), (3, "value"))}
        if mask:
            inputs["mask_index"] = whole(0, 2, B, past + 1, seed=4) | np.array([1, 0, 0, 0, 1], np.int32)
        if bias:
            inputs["attention_bias"] = numbers(1, N, 1, past + 1)
        if shared:
            inputs["past_sequence_length"] = np.array([past], np.int32)
        yield Case(
            f"mask {mask} bias {bias} shared {shared} packed {packed}",
            "DecoderMaskedMultiHeadAttention",
            inputs,
            {"num_heads": N, "past_present_share_buffer": int(shared)},
            ["output", "present_key", "present_value"],
            expected=None if shared else _decoded,
        )
    inputs = {"query": numbers(B, 1, N * D), "key": numbers(B, N, T, D, seed=1), "value": numbers(B, N, T, D, seed=2)}
    yield Case("cross", "DecoderMaskedMultiHeadAttention", inputs, {"num_heads": N})
    yield Case(
        "cross scores", "DecoderMaskedMultiHeadAttention", inputs, {"num_heads": N, "output_qk": 1}, ["output", "qk"]
    )


CASES = [*multi_head(), *multi_head_more(), *with_weights(), *decoder()]
