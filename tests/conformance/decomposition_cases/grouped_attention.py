"""GroupQueryAttention: what a call stores, and how it attends."""

import itertools

import numpy as np

from ..decomposing import TYPES, Case, kernel_results
from . import numbers, whole
from .rotary import caches

N, K, D = 4, 2, 32  # heads of queries, of keys, and their size


def states():
    """Calls by name: batch, new tokens, rows of the cache (None without one), tokens cached after the call."""
    return {
        "first": (2, 5, None, (5, 5)),
        "first, padded": (2, 5, None, (3, 5)),
        "first into a buffer": (2, 5, 9, (5, 4)),
        "next": (1, 1, 4, (5,)),
        "next of a batch": (2, 1, 4, (5, 3)),
        "next in a buffer": (2, 1, 9, (4, 6)),
        "chunk": (1, 3, 4, (7,)),
        "chunk in a buffer": (1, 3, 9, (6,)),
    }


def call(state, dtype="float32", packed=False, new=None, size=D):
    """Inputs of a call, and the parts of its results that are defined."""
    batch, length, rows, cached = states()[state] if isinstance(state, str) else state
    total = max(cached) if rows is not None else length
    total = max(total, length)
    inputs = {}
    if packed:
        inputs["query"] = numbers(batch, length, (N + 2 * K) * size, dtype=dtype)
    else:
        inputs["query"] = numbers(batch, length, N * size, dtype=dtype)
        inputs["key"] = numbers(batch, length, K * size, seed=1, dtype=dtype)
        inputs["value"] = numbers(batch, length, K * size, seed=2, dtype=dtype)
    if rows is not None:
        inputs["past_key"] = numbers(batch, K, rows, size, seed=3, dtype=dtype)
        inputs["past_value"] = numbers(batch, K, rows, size, seed=4, dtype=dtype)
    inputs["seqlens_k"] = np.array(cached, np.int32) - 1
    inputs["total_sequence_length"] = np.array(total, np.int32)
    valid = [min(length, one) for one in cached] if new is None else new
    if new is not None:
        inputs["query_seqlens"] = np.array(new, np.int32)
    present = max(rows or 0, total)
    queries = np.arange(length)[None] < np.array(valid)[:, None]
    stored = np.arange(present)[None] < np.array(cached)[:, None]
    stored = np.broadcast_to(stored[:, None], (batch, K, present))
    scores = np.broadcast_to(queries[:, None, :, None], (batch, N, length, total))
    seen = np.arange(total)[None, None, None] < np.array(cached)[:, None, None, None]
    defined = {
        "output": queries,
        "present_key": stored,
        "present_value": stored,
        "output_qk": scores & seen,
    }
    return inputs, defined


OPEN = {
    "query": {0: "batch", 1: "length"},
    "key": {0: "batch", 1: "length"},
    "value": {0: "batch", 1: "length"},
    "past_key": {0: "batch", 2: "past"},
    "past_value": {0: "batch", 2: "past"},
    "seqlens_k": {0: "batch"},
}
OUTPUTS = ["output", "present_key", "present_value"]


def case(name, state, dtype="float32", attributes=(), more=None, opened=False, outputs=OUTPUTS, packed=False, **rest):
    inputs, defined = call(state, dtype, packed, rest.pop("new", None))
    return Case(
        f"{state if isinstance(state, str) else 'other'} {dtype} {name}",
        "GroupQueryAttention",
        inputs | (more or {}),
        {"num_heads": N, "kv_num_heads": K, **dict(attributes)},
        outputs,
        ["cos_cache", "sin_cache"],
        OPEN if opened else {},
        defined=defined,
        through_float32=dtype == "bfloat16",
        **rest,
    )


WAYS = {
    "plain": {},
    "scale": {"scale": 0.3},
    "window": {"local_window_size": 3},
    "window of one": {"local_window_size": 1},
    "cap": {"softcap": 2.0},
    "smooth": {"smooth_softmax": 1},
    "cap, window, smooth": {"softcap": 2.0, "local_window_size": 2, "smooth_softmax": 1},
    "both directions": {"causal": 0},
}


def attending():
    for state, dtype, (name, attributes), packed in itertools.product(states(), TYPES, WAYS.items(), (False, True)):
        if dtype == "bfloat16" and name != "plain" or packed and dtype != "float32":
            continue
        yield case(f"{name}{' packed' * packed}", state, dtype, attributes, packed=packed, opened=not packed)
    for state, dtype in itertools.product(states(), ("float32", "float16")):
        sink = {"head_sink": numbers(N, seed=7, dtype=dtype)}
        yield case("sinks", state, dtype, more=sink)
        batch, length, _, cached = states()[state]
        total = max(*cached, length)
        for rows, heads in ((1, 1), (batch, N)):
            bias = {"attention_bias": numbers(rows, heads, length, total, seed=8, dtype=dtype)}
            yield case(f"bias {heads}", state, dtype, {"softcap": 1.5}, bias)
        for which in (1, 2):
            yield case(f"scores {which}", state, dtype, {"qk_output": which}, outputs=[*OUTPUTS, "output_qk"])
        yield case(
            "scores",
            state,
            dtype,
            {"qk_output": 1, "softcap": 2.0, "local_window_size": 2},
            outputs=[*OUTPUTS, "output_qk"],
        )


def turning():
    for state, dtype, interleaved, part, packed in itertools.product(
        states(), TYPES, (0, 1), (False, True), (False, True)
    ):
        if dtype == "bfloat16" and part or packed and dtype != "float32":
            continue
        tables = caches(16, 8 if part else D // 2, TYPES[dtype])
        attributes = {"do_rotary": 1, "rotary_interleaved": interleaved}
        yield case(
            f"rotary {interleaved}{' part' * part}{' packed' * packed}", state, dtype, attributes, tables, packed=packed
        )
    for state in states():
        batch, length, _, _ = states()[state]
        places = (np.arange(length)[None] + np.array([2, 5])[:batch, None]).astype(np.int64)
        yield case("positions", state, attributes={"do_rotary": 1}, more=caches(16, D // 2) | {"position_ids": places})


def chunks():
    for rotary, new in itertools.product((0, 1), ((2, 3), (3, 0), (1, 2))):
        state = (2, 3, 10, (5, 7))
        attributes = {"do_rotary": rotary, "local_window_size": 4}
        tables = caches(16, D // 2) if rotary else {}
        yield case(f"padded chunk {rotary} {new}", state, "float32", attributes, tables, new=list(new))
    more = caches(16, D // 2) | {"position_ids": np.array([[3, 1, 2], [4, 5, 9]])}
    yield case("padded chunk positions", (2, 3, 10, (5, 7)), attributes={"do_rotary": 1}, more=more, new=[2, 3])
    more["position_ids"] = np.array([[3, 4, 5], [6, 7, 8]])
    yield case("padded first positions", (2, 3, 10, (2, 3)), attributes={"do_rotary": 1}, more=more, new=[2, 3])
    yield case("padded, one", (2, 1, 10, (5, 7)), new=[1, 0])


def resident(tokens, capacity, window):
    """The number of rows in use of a cache that drops rows, as the schema says."""
    step = capacity - window + 1
    return tokens if tokens <= capacity else tokens - step * -(-(tokens - capacity) // step)


def dropping():
    window = 4
    for dtype, (batch, length, cached, new), capacity, way in itertools.product(
        ("float32", "float16"),
        ((1, 1, (3,), None), (2, 1, (9, 4), None), (1, 3, (11,), None), (1, 6, (13,), None), (2, 3, (9, 5), (3, 1))),
        (4, 6),
        ("plain", "rotary", "bias"),
    ):
        total = max(*cached, length)
        inputs, _ = call((batch, length, capacity, cached), dtype, new=None if new is None else list(new))
        valid = new or [min(length, one) for one in cached]
        more = caches(16, D // 2, TYPES[dtype]) if way == "rotary" else {}
        if way == "bias":
            more = {"attention_bias": numbers(1, N, length, total, seed=8, dtype=dtype)}
        queries = np.arange(length)[None] < np.array(valid)[:, None]
        stored = np.arange(capacity)[None] < np.array([[resident(one, capacity, window)] for one in cached])
        stored = np.broadcast_to(stored[:, None], (batch, K, capacity))
        attributes = {"num_heads": N, "kv_num_heads": K, "local_window_size": window, "sliding_window_cache": 1}
        yield Case(
            f"dropping {dtype} {batch} {length} {cached} {capacity} {way}",
            "GroupQueryAttention",
            inputs | more,
            attributes | {"do_rotary": int(way == "rotary")},
            OUTPUTS,
            open={"query": {0: "batch"}} if way == "bias" else {},
            defined={"output": queries, "present_key": stored, "present_value": stored},
        )


def in_integers():
    for state, dtype, kind, bits, rotary in itertools.product(
        states(), ("float32", "float16"), ("PER_TENSOR", "PER_CHANNEL"), (8, 4), (0, 1)
    ):
        rows = states()[state][2]
        if rows is None:
            continue
        inputs, defined = call(state, dtype)
        batch = states()[state][0]
        shape = (1, K, 1, D) if kind == "PER_CHANNEL" else (1,)
        spread = 0.02 if bits == 8 else 0.3
        for seed, name in ((5, "k"), (6, "v")):
            inputs[f"{name}_scale"] = (np.abs(numbers(*shape, seed=seed)) + 0.5) * np.float32(spread)
            past = {"k": "past_key", "v": "past_value"}[name]
            inputs[past] = (
                whole(-128, 128, batch, K, rows, D, seed=seed, dtype=np.int8)
                if bits == 8
                else whole(0, 256, batch, K, rows, D // 2, seed=seed, dtype=np.uint8)
            )
        attributes = {"num_heads": N, "kv_num_heads": K, "k_quant_type": kind, "v_quant_type": kind}
        attributes |= {"kv_cache_bit_width": bits, "do_rotary": rotary}
        yield Case(
            f"{state} {dtype} {kind} {bits} bits rotary {rotary}",
            "GroupQueryAttention",
            inputs | (caches(16, D // 2, TYPES[dtype]) if rotary else {}),
            attributes,
            OUTPUTS,
            defined=defined,
            steps=(1, 0.002),
        )


def _normalized_before(query, key, q_norm_weight, k_norm_weight, q_norm_epsilon=None, qk_norm_epsilon=1e-6, **given):
    """The kernel on CPUs refuses norms of heads: its result for heads that were normalized before."""
    attributes = {name: given.pop(name) for name in list(given) if not isinstance(given[name], np.ndarray)}
    given = {name: value.astype(np.float32) if value.dtype == np.float64 else value for name, value in given.items()}
    sides = ((query, q_norm_weight, q_norm_epsilon or qk_norm_epsilon), (key, k_norm_weight, qk_norm_epsilon))
    for name, (x, weight, epsilon) in zip(("query", "key"), sides):
        heads = x.reshape(*x.shape[:2], -1, D)
        normal = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + epsilon) * weight
        given[name] = normal.reshape(x.shape).astype(np.float32)
    return kernel_results(Case("before", "GroupQueryAttention", given, attributes, OUTPUTS))


def normalizing():
    for state, dtype, epsilon in itertools.product(states(), ("float32", "float16"), (None, 0.1)):
        norms = {f"{name}_norm_weight": numbers(D, seed=seed, dtype=dtype) for seed, name in enumerate("qk")}
        attributes = {"do_rotary": 1, "qk_norm_epsilon": 1e-3} | ({"q_norm_epsilon": epsilon} if epsilon else {})
        more = norms | caches(16, D // 2, TYPES[dtype])
        yield case(f"norms {epsilon}", state, dtype, attributes, more, expected=_normalized_before)


CASES = [*attending(), *turning(), *chunks(), *in_integers(), *dropping(), *normalizing()]
