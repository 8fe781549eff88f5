"""Verification: the outputs of the original and of the result, compared."""

from dovetail.verification.compare import OutputComparison, Verification, verify

__all__ = ["OutputComparison", "Verification", "verify"]
