"""The HTP: its engine, and the emitter that compiles contexts for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_onnxruntime_ep import ContextEmitter, Qnn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.plugin import EmittedRegion


class Htp(Qnn):
    """Runs regions on the HTP, or on x86 on its emulator, which computes the same integers."""

    name = "qnn-htp"

    def provider_options(self, options: Mapping[str, object]) -> dict[str, str]:
        """Return the options of the provider, with those that the backend was chosen with."""
        chosen = options.get("backend")
        return {**self.provider.options, **_of_chip(chosen if isinstance(chosen, dict) else {})}


class Context(ContextEmitter):
    """Compiles a region into a context binary for the HTP."""

    provider = Qnn.provider
    title = "qnn-context"

    def provider_options(self, region: EmittedRegion) -> dict[str, str]:
        """Return the options of the provider, with those that the backend was chosen with."""
        return {**self.provider.options, **_of_chip(region.backend.chosen)}


def _of_chip(chosen: Mapping[str, str]) -> dict[str, str]:
    arch = chosen.get("arch", "")
    return {"htp_arch": arch} if arch and arch != "any" else {}
