"""Qualcomm's chips: what the provider is told of the one that a context is compiled for.

Numbers and architectures are those of Qualcomm's QNN SDK, as its public integrations list them (ExecuTorch's
`QcomChipset`, Olive for sc8380xp). The provider of onnxruntime-qnn 2.7 compiled the digits for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.plugin import EngineError

_SOCS = {
    "qcm6490": (93, 68), "qcs9100": (77, 73), "sa8255": (52, 73), "sa8295": (39, 68), "sa8540": (62, 68),
    "sa8797": (72, 81), "sar2230p": (95, 81), "sc8380xp": (60, 73), "sm8350": (30, 68), "sm8450": (36, 69),
    "sm8475": (42, 69), "sm8550": (43, 73), "sm8650": (57, 75), "sm8750": (69, 79), "sm8845": (97, 81),
    "sm8850": (87, 81), "ssg2115p": (46, 73), "ssg2125p": (58, 73), "sw6100": (96, 81), "sxr1230p": (45, 73),
    "sxr2230p": (53, 69), "sxr2330p": (75, 79),
}  # fmt: skip
"""Number and architecture by name."""

_WITH_FLOAT16 = 69
"""The first architecture that has float16; the emulator computes it for any."""


def options_of(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the provider's options for the options that the backend was chosen with.

    Args:
        chosen: Values by name of option: `soc`, `arch`, `activations`.

    Raises:
        EngineError: They contradict each other, or the chip has no float16.
    """
    soc, arch = chosen.get("soc", "any"), chosen.get("arch", "any")
    number, own = _SOCS.get(soc, (0, 0))
    if own and arch not in ("any", str(own)):
        raise EngineError(
            f"qnn: {soc} is of arch {own}, and arch={arch} is asked for", f"--backend qnn:soc={soc} says both"
        )
    found = str(own) if own else arch
    if chosen.get("activations") == "float16" and found != "any" and int(found) < _WITH_FLOAT16:
        what = f"{soc}, of arch {found}," if own else f"arch {found}"
        raise EngineError(
            f"qnn: {what} has no float16, which is on chips from arch {_WITH_FLOAT16} on",
            "--backend qnn:activations=uint16 computes in 16-bit integers",
        )
    said = {"htp_arch": found} if found != "any" else {}
    return {**said, "soc_model": str(number)} if number else said
