"""The contract of engines whose sessions a later program makes again, from files and plain data alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.plugin import RegionModel, Session


class KeptSession(NamedTuple):
    """What a session is made from again.

    Attributes:
        data: Plain data: what `json` writes and reads.
        files: The files that it needs, which nobody writes again. They are no code.
    """

    data: Mapping[str, Any]
    files: tuple[Path, ...] = ()


class DeployedSession(NamedTuple):
    """How a session is made without Dovetail, by whoever reads the description of an exported result.

    Attributes:
        engine: What runs its files: `onnxruntime`, `openvino`, or a name that the engine's vendor documents.
        settings: Plain data; `docs/reference/exported.md` says what those of the first two mean.
        needs: Instructions of the CPU that its files were made for, as Linux names them: one of each group.
    """

    engine: str
    settings: Mapping[str, Any]
    needs: tuple[tuple[str, ...], ...] = ()


class SessionStart(ABC):
    """How sessions of an engine start without the region that they were loaded from.

    Registered as `registry.session_start("acme-npu", "acme_npu.start:AcmeStart")` under the name of the engine. A
    program that starts again imports its module and little else, so that imports nothing that only loading a region
    needs. A session that was made again computes bit by bit what the first one does. Where either method gives up, the
    result is loaded as a whole.
    """

    @abstractmethod
    def keep(self, session: Session, region: RegionModel, folder: Path) -> KeptSession | None:
        """Write what a session is made from again; None if it cannot be.

        Args:
            session: A session of the engine that has just loaded `region`. What depends on options of the caller
                (`threads`, `session_options`) is not kept.
            region: The region. Its path, if it has one, stays where it is and need not be copied.
            folder: An empty folder for files.
        """

    @abstractmethod
    def restart(self, kept: KeptSession, options: Mapping[str, object]) -> Session:
        """Make a session again.

        Args:
            kept: What `keep` returned, with the files where they are now.
            options: Options of the engine, as for `Engine.load`.

        Raises:
            Exception: Any; the result is loaded as a whole then. So it is for inputs on which `run` raises.
        """

    def deployed(self, kept: KeptSession) -> DeployedSession | None:
        """Return how a program without Dovetail makes a session; None, by default, if it cannot.

        Args:
            kept: What `keep` returned.
        """
        return None
