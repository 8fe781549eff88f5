"""Options of backends that suit the program which loads a folder, where the request leaves them open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.passes import BackendChoice
from dovetail.plugin.loading import load_chosen

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet

ONNXRUNTIME_GENAI = "onnxruntime-genai"
"""What backend files call the program that reads `genai_config.json`."""

Backends = str | BackendChoice | Sequence[str | BackendChoice]


def suited_to(program: str, backends: Backends, plugins: PluginSet) -> tuple[list[BackendChoice], list[str]]:
    """Return backends with the options that their files name for a program, and a note for each that changed.

    Args:
        program: The program that loads the result.
        backends: The backends of a request; an option that it gives stays as it is.
        plugins: Where the backends are registered.

    Raises:
        DovetailError: A backend or an option is unknown.
    """
    given = [backends] if isinstance(backends, (str, BackendChoice)) else backends
    chosen, notes = [], []
    for choice in map(BackendChoice.parse, given):
        wanted = load_chosen(plugins.registry, choice).runtimes.get(program, {})
        added = {option: value for option, value in wanted.items() if option not in choice.options}
        chosen.append(BackendChoice(choice.name, {**choice.options, **added}) if added else choice)
        for option, value in added.items():
            notes.append(f"{choice.name}: {option}={value}, which suits {program}; another {option}= in --backend wins")
    return chosen, notes
