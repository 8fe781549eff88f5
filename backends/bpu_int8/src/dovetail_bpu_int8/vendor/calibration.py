"""Calibration methods of the vendor's tools, as observers of the backend."""

from __future__ import annotations

from dovetail.text import did_you_mean

from dovetail_bpu_int8.vendor.asked import VendorSettings, names_in, origin
from dovetail_bpu_int8.vendor.marches import HB_MAPPER
from dovetail_bpu_int8.vendor.tree import Entries, FileError, Node, Scalar, as_plain

ASYMMETRIC = {"activations": "asymmetric"}
"""Backend options for int8 activations with a zero point."""

TYPES = ("default", "mix", "kl", "max", "load", "skip")
_COMPILES = "it takes effect where the vendor's tool compiles the files that are written"
_KL = "kl"


def read_calibration_type(parameters: Entries, asked: VendorSettings) -> None:
    """Read `calibration_type`, `max_percentile` and `per_channel`.

    Raises:
        FileError: The method is unknown, or a number is out of range.
    """
    given = parameters.get("calibration_type")
    written = given.raw.strip() if isinstance(given, Scalar) and not given.is_null else ""
    place = given if given is not None and written else parameters
    kind = written or _unwritten(parameters, asked)
    if kind not in TYPES:
        near = did_you_mean(kind, TYPES)
        raise FileError(place, f"calibration_type '{kind}' is not known{near}", f"it is one of {', '.join(TYPES)}")
    share = _share(parameters.get("max_percentile"), kind, asked)
    set_observer(kind, share, place, asked)
    per_channel = parameters.get("per_channel")
    if (
        isinstance(per_channel, Scalar)
        and as_plain(Scalar(per_channel.file, per_channel.line, per_channel.raw)) is True
    ):
        why = "activations have one scale each here, weights one per channel"
        asked.note(f"{per_channel.where}, per_channel: {why}", _COMPILES)


def _unwritten(parameters: Entries, asked: VendorSettings) -> str:
    """Return the tools' default method: hb_compile skips calibration if no samples are named."""
    folder = parameters.get("cal_data_dir")
    named = folder is not None and any(names_in(folder))
    return "default" if asked.march.tool == HB_MAPPER or named else "skip"


def set_observer(kind: str, share: float, place: Node, asked: VendorSettings, key: str = "") -> None:
    """Choose the observer for a calibration method, with a note if it differs from the vendor's.

    Args:
        kind: One of `TYPES`.
        share: The fraction that `max` covers, up to 1.
        place: Its position in the file.
        asked: The settings of the file, to update.
        key: Its key and value; empty for `calibration_type`.
    """
    where = origin(place, key or f"calibration_type {kind}")
    asked.on_random = kind == "skip"
    if kind == "max" and share < 1:
        asked.backend |= {"observer": "percentile", "observer.percentile": f"{share * 100:.10g}"}
    elif kind in ("max", "skip"):
        asked.backend["observer"] = "minmax"
    elif kind == "mix":
        asked.backend["observer"] = "mix"
    elif kind != "default":  # by default the candidates are compared, as in the vendor's tool
        asked.backend["observer"] = _KL
    if kind == "load":
        why = "scales of QuantizeLinear nodes in the model are taken wherever they fit; the rest is calibrated by kl"
        asked.note(f"{where}: {why}", "give --data for values without such a node")
    elif kind == "skip":
        why = "thresholds come from random numbers, as in the vendor's tool, so that results say nothing about accuracy"
        asked.note(f"{where}: {why}", "give --data: inputs like those that the model will see")


def _share(node: Node | None, kind: str, asked: VendorSettings) -> float:
    if node is None or (isinstance(node, Scalar) and (node.is_null or not node.raw.strip())):
        return 1.0
    try:
        share = float(node.text("max_percentile"))
    except ValueError:
        raise FileError(node, f"max_percentile '{node.text('max_percentile')}' is no number") from None
    lowest = 0.5 if asked.march.tool == HB_MAPPER else 0.0
    if not lowest <= share <= 1 or share == 0:
        problem = f"max_percentile {share:g} is not a share from {lowest:g} to 1"
        hint = f"for {share:g} percent write {share / 100:g}" if 1 < share <= 100 else "0.9999 covers 99.99 percent"
        raise FileError(node, problem, hint)
    if kind != "max":
        asked.note(f"{node.where}, max_percentile: calibration_type is {kind}, so that it does nothing", "write max")
    return share
