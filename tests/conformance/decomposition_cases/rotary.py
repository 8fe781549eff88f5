"""Rotary position embeddings."""

import itertools

import numpy as np

from ..decomposing import Case
from . import numbers, whole

OPEN = {0: "batch", 1: "length"}


def caches(rows, width, dtype="float32"):
    angles = np.outer(np.arange(rows), 1 / 100 ** (np.arange(width) / width))
    return {"cos_cache": np.cos(angles).astype(dtype), "sin_cache": np.sin(angles).astype(dtype)}


def plain():
    for dtype, interleaved, rank, part, ids in itertools.product(
        ("float32", "float16"), (0, 1), (3, 4), (False, True), ("first", "all")
    ):
        heads, size = 3, 8
        width = 2 if part else 4
        x = numbers(2, 5, heads * size, dtype=dtype) if rank == 3 else numbers(2, heads, 5, size, dtype=dtype)
        positions = np.array([3], np.int64) if ids == "first" else whole(0, 11, 2, 5, dtype=np.int64)
        attributes = {"interleaved": interleaved}
        if part:
            attributes |= {"num_heads": heads, "rotary_embedding_dim": 2 * width}
        yield Case(
            f"{dtype} {interleaved} {rank} {ids} {part}",
            "RotaryEmbedding",
            {"input": x, "position_ids": positions, **caches(16, width, dtype)},
            attributes,
            constants=["cos_cache", "sin_cache"],
            open={"input": OPEN if rank == 3 else {0: "batch", 2: "length"}},
        )
    inputs = {"input": numbers(2, 5, 24), "position_ids": whole(0, 9, 2, 5, dtype=np.int64), **caches(16, 4)}
    for name, value in (("scale", 2.0), ("is_packed_batching", 1)):
        yield Case(name, "RotaryEmbedding", inputs, {name: value})


def multimodal():
    for dtype, interleaved, layout, rank, part in itertools.product(
        ("float32", "float16"), (0, 1), (0, 1), (3, 4), (False, True)
    ):
        heads, size, sections = 2, 16, [2, 1, 1] if part else [4, 2, 2]
        x = numbers(2, 5, heads * size, dtype=dtype) if rank == 3 else numbers(2, heads, 5, size, dtype=dtype)
        attributes = {"interleaved": interleaved, "mrope_layout": layout, "mrope_section": sections}
        if part or rank == 3:
            attributes |= {"num_heads": heads, "rotary_embedding_dim": 2 * sum(sections)}
        yield Case(
            f"{dtype} {interleaved} {layout} {rank} {part}",
            "MRotaryEmbedding",
            {"input": x, "position_ids": whole(0, 9, 3, 2, 5, dtype=np.int64), **caches(16, sum(sections), dtype)},
            attributes,
        )


def _gemma(emb, q, q_rot, k, k_rot):
    cos, sin = (f(emb)[:, None].astype(np.float16).astype(np.float64) for f in (np.cos, np.sin))
    return [q * cos + q_rot * sin, k * cos + k_rot * sin]


def gemma():
    names = ("q", "q_rot", "k", "k_rot")
    inputs = {name: numbers(2, 3, 4, 8, seed=seed, dtype="float16") for seed, name in enumerate(names)}
    yield Case(
        "formula",
        "GemmaRotaryEmbedding",
        {"emb": numbers(2, 4, 8)} | inputs,
        outputs=["output1", "output2"],
        expected=_gemma,
    )


CASES = [*plain(), *multimodal(), *gemma()]
