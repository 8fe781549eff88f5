"""The HTP: its engine, and the emitter that compiles contexts for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin import EngineError
from dovetail_onnxruntime_ep import ContextEmitter, Qnn

from dovetail_qnn.chips import options_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dovetail.plugin import Artifact, EmittedRegion


class Htp(Qnn):
    """Runs regions on the HTP, or on x86 on its emulator, which computes the same integers."""

    name = "qnn-htp"
    reads = Qnn.reads._replace(types=Qnn.reads.types | {"int4"})  # of weights

    def provider_options(self, options: Mapping[str, object]) -> dict[str, str]:
        """Return the options of the provider, with those that the backend was chosen with.

        Raises:
            EngineError: These contradict each other; see `options_of`.
        """
        chosen = options.get("backend")
        return {**self.provider.options, **options_of(chosen if isinstance(chosen, dict) else {})}


class HtpContext(ContextEmitter):
    """Compiles a region into a context binary for the HTP."""

    provider = Qnn.provider
    title = "qnn-context"

    def provider_options(self, region: EmittedRegion) -> dict[str, str]:
        """Return the options of the provider, with those that the backend was chosen with.

        Raises:
            EngineError: These contradict each other; see `options_of`.
        """
        try:
            return {**self.provider.options, **options_of(region.backend.chosen)}
        except EngineError as error:  # of the whole region, in which no node is to be searched
            raise EngineError(error.message, error.hint, nodes=region.nodes) from None

    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Write the context, and return the node; options that contradict each other are an error also without a chip.

        Raises:
            EngineError: See `ContextEmitter`.
        """
        self.provider_options(region)
        return super().emit(region, folder)
