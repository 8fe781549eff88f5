"""What in a comparison is a warning, and not just a number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail_verify.compare import OutputComparison


POOR = 20.0  # dB; below, the noise has more than a tenth of the amplitude of the signal


def warning_of(output: OutputComparison) -> str:
    """What is alarming about an output, in one sentence; empty if nothing is, and of what is broken anyway."""
    if output.broken:
        return ""
    found = []
    if output.snr_db == -math.inf:
        found.append(f"the original is zero, the result differs from it by up to {output.max_abs:.3g}")
    elif output.snr_db is not None and output.snr_db < POOR:
        found.append(f"SNR {output.snr_db:.1f} dB, below {POOR:g} dB")
    if output.top1 is not None and output.top1 < 1:
        # Rows may be coordinates as well, of which the largest is no answer.
        what = "another answer" if output.answers else "another element is the largest"
        found.append(f"{what} in {100 * (1 - output.top1):.2f} % of the rows")
    if output.hits is not None and output.hits[1] < output.hits[0]:
        found.append(f"labels hit in {100 * output.hits[1]:.2f} % of the rows, {100 * output.hits[0]:.2f} % before")
    return f"'{output.name}': {', '.join(found)}" if found else ""
