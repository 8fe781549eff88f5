"""The contract of engines that write files for their own runtime."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from dovetail.plugin import Engine

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.plugin import RegionModel


class ConvertingEngine(Engine):
    """Base class of engines that can write a region in the format of their own runtime, for programs that load that.

    Attributes:
        writes: The suffix of the file: `.xml`.
    """

    writes: ClassVar[str]

    @abstractmethod
    def convert(self, region: RegionModel, path: Path, adapt: Callable[[Any], None]) -> None:
        """Write a region; the runtime computes it, by its defaults, as this engine does.

        Args:
            region: The region.
            path: The file to write; others may be next to it, with the same stem.
            adapt: Called with the runtime's own model before it is written, to change its inputs and outputs.

        Raises:
            EngineError: The engine rejects the region; the error names the node if it is known.
        """
