"""Mixtures of experts."""

import itertools

import numpy as np

from ..decomposing import TYPES, Case, kernel_results
from . import numbers, whole

E, H, F = 4, 32, 32  # experts, hidden and inner size
GATED = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 2.0}


def plain():
    for activation, k, normalized, bias, rank in itertools.product(
        ("relu", "gelu", "silu", "identity", "swiglu 1", "swiglu 2", "swiglu plain"), (1, 2, 3), (0, 1), (0, 1), (2, 3)
    ):
        if rank == 3 and k != 2:
            continue
        name, _, fusion = activation.partition(" ")
        width = 2 * F if fusion else F
        tokens = 6
        inputs = {
            "input": numbers(tokens, H) if rank == 2 else numbers(2, 3, H),
            "router_probs": numbers(tokens, E, seed=1),
            "fc1_experts_weights": numbers(E, width, H, seed=2, spread=0.2),
            "fc2_experts_weights": numbers(E, H, F, seed=3, spread=0.2),
        }
        if bias:
            inputs |= {"fc1_experts_bias": numbers(E, width, seed=4), "fc2_experts_bias": numbers(E, H, seed=5)}
        attributes = {"k": k, "activation_type": name, "normalize_routing_weights": normalized}
        if fusion:
            attributes |= {"swiglu_fusion": 2 if fusion == "2" else 1} | (GATED if fusion != "plain" else {})
        yield Case(
            f"{activation} {k} of {E} normalized {normalized} bias {bias} {rank} axes",
            "MoE",
            inputs,
            attributes,
            constants=[name for name in inputs if name.startswith("fc")],
            open={"input": {0: "batch"}},
            expected=_in_pairs if fusion == "2" else None,
        )


def _in_pairs(swiglu_fusion, **given):
    """The kernel on CPUs reads gates and others in pairs alone: its result for weights in that order."""
    order = np.arange(2 * F).reshape(2, F).T.reshape(-1)
    attributes = {name: given.pop(name) for name in list(given) if not isinstance(given[name], np.ndarray)}
    given = {name: value.astype(np.float32) for name, value in given.items()}
    for name in ("fc1_experts_weights", "fc1_experts_bias"):
        if name in given:
            given[name] = given[name][:, order]
    return kernel_results(Case("pairs", "MoE", given, attributes | {"swiglu_fusion": 1}))


def quantized():
    for dtype, bits, block, zero, bias, activation, given in itertools.product(
        TYPES, (2, 4, 8), (0, 32), (False, True), (False, True), ("silu", "swiglu"), (None, 0, 1)
    ):
        if given is not None and (dtype != "float32" or block) or bias != (activation == "swiglu"):
            continue
        width = 2 * F if activation == "swiglu" else F
        inputs = {
            "input": numbers(6, H, dtype=dtype),
            "router_probs": numbers(6, E, seed=1, dtype=dtype),
            "router_weights": None if given is None else np.abs(numbers(6, E, seed=9, dtype=dtype)),
        }
        for which, rows, columns in ((1, width, H), (2, H, F)):
            blocks = (columns // block,) if block else ()
            inputs[f"fc{which}_experts_weights"] = whole(
                0, 256, E, rows, columns * bits // 8, seed=which, dtype=np.uint8
            )
            scales = np.abs(numbers(E, rows, *blocks, seed=which + 2, spread=0.3 / 2**bits, dtype="float32"))
            inputs[f"fc{which}_scales"] = scales.astype(TYPES[dtype])
            if bias:
                inputs[f"fc{which}_experts_bias"] = numbers(E, rows, seed=which + 4, dtype=dtype)
            if zero:
                shape = (E, rows, -(-blocks[0] * bits // 8)) if block else (E, -(-rows * bits // 8))
                inputs[f"fc{which}_zero_points"] = whole(0, 256, *shape, seed=which + 6, dtype=np.uint8)
        attributes = {"k": 2, "activation_type": activation, "expert_weight_bits": bits}
        attributes |= {"block_size": block} if block else {}
        attributes |= {"normalize_routing_weights": given} if given is not None else {}
        attributes |= {"swiglu_fusion": 1, **GATED} if activation == "swiglu" else {}
        yield Case(
            f"{dtype} {bits} bits block {block} zero {zero} {activation} router {given}",
            "QMoE",
            inputs,
            attributes,
            constants=[name for name in inputs if name.startswith("fc")],
            open={"input": {0: "tokens"}},
            through_float32=dtype == "bfloat16",
            close=3e-2 if bits == 8 and block else None,  # the kernel rounds tokens to 8 bits
        )


CASES = [*plain(), *quantized()]
