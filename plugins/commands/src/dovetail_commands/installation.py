"""Whether the installed distributions of Dovetail fit together: foreign files in their folder, several versions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from dovetail import __version__
from dovetail.installed import DISTRIBUTION
from dovetail.text import pluralize

_FOREIGN = "dovetail"  # a build tool in the public index; its package has the same folder as core's
_AUTHORS = "The Dovetail authors"


@dataclass(frozen=True)
class InstallationProblem:
    """What is wrong with the installation.

    Attributes:
        text: What is wrong.
        command: The command that repairs it.
    """

    text: str
    command: str


def installation_problems() -> Iterator[InstallationProblem]:
    """Yield what is wrong with the installed distributions: one that owns the same files, and several versions."""
    from importlib import metadata  # slow to import; the help lists the command of this module

    found: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for one in metadata.distributions():
        name = str(one.metadata["Name"]).lower().replace("_", "-")
        if name == _FOREIGN or one.metadata["Author"] == _AUTHORS:
            found[name][one.version.partition("+")[0]] = None  # a build of this repository adds a digest: 0.1.0+tree...
    if foreign := found.pop(_FOREIGN, None):
        yield InstallationProblem(
            f"the distribution {_FOREIGN} {', '.join(foreign)} is not a part of {DISTRIBUTION} and has files in the "
            "same folder",
            f"pip uninstall -y {_FOREIGN} && pip install --force-reinstall --no-deps {DISTRIBUTION}=={__version__}",
        )
    for name, versions in sorted(found.items()):
        if len(versions) > 1:
            where = " and ".join(versions)
            yield InstallationProblem(
                f"{name} is installed {pluralize(len(versions), 'time')}, as {where}",
                f"{f'pip uninstall -y {name}; ' * len(versions)}pip install {name}=={__version__}",
            )
    others = {name: version for name in sorted(found) for version in found[name] if version != __version__}
    if others:
        yield InstallationProblem(
            f"Dovetail {__version__} has parts of other versions: {', '.join(map(' '.join, others.items()))}",
            f"pip install {' '.join(f'{name}=={__version__}' for name in others)}",
        )
