"""Instructions of the CPU that engines depend on."""

from __future__ import annotations

import functools
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16"})
"""Flags of CPUs that compute products of bfloat16, as Linux names them."""
DOT_PRODUCTS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
"""Flags of CPUs whose sums of products of 8-bit integers do not saturate, as Linux names them."""


@functools.cache
def cpu_facts() -> tuple[str, ...]:
    """Return Linux's description of all CPUs, as lines `name : value`; empty on other systems."""
    try:
        return tuple(_CPUINFO.read_text().splitlines())
    except OSError:
        return ()


@functools.cache
def cpu_flags() -> frozenset[str] | None:
    """Return the flags of an x86 CPU as Linux names them; None on other systems and CPUs."""
    flags = next((line.partition(":")[2].split() for line in cpu_facts() if line.startswith("flags")), None)
    return None if flags is None else frozenset(flags)


def has_bfloat16() -> bool | None:
    """Check whether the CPU has AVX512-BF16 or AMX-BF16; None if the system does not report it."""
    flags = cpu_flags()
    return None if flags is None else bool(flags & BFLOAT16)


def saturates_dot_products() -> bool:
    """Check whether kernels for this CPU add products of uint8 and int8 in pairs with 16 bits, which saturates.

    That is so on x86 without VNNI and AMX, where kernels use VPMADDUBSW: 255 * 127 + 255 * 127 becomes 32767. Sums are
    exact if one of the operands has integers from -64 to 64. CPUs that the system does not describe count as exact.

    Source: Intel, "oneDNN developer guide", section "Nuances of int8 computations".
    """
    flags = cpu_flags()
    return flags is not None and not flags & DOT_PRODUCTS
