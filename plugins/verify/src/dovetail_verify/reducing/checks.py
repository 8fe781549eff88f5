"""Checks that say whether a model fails: a command, a backend's accuracy or error, a function."""

from __future__ import annotations

import re
import shlex
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.passes import Context, Request
from dovetail.plugin import TemporaryFolder, run_command
from dovetail.plugin.loading import described
from dovetail_runtime.data.data_split import Use, split_data

from dovetail_verify.accuracy.goals import Goals
from dovetail_verify.compare import verify
from dovetail_verify.reducing.parts import LONGEST_NAME
from dovetail_verify.runners import reference_runner, runner

if TYPE_CHECKING:
    import numpy as np
    from dovetail.plugin import PluginSet

    from dovetail_verify.reducing.parts import FailingModel


_NOT_RUN = (126, 127)  # exit codes of a shell: not executable, not found
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '(\w+)", re.MULTILINE)
_TAIL = 400  # characters of a command's output in messages


class Check(ABC):
    """Says whether a candidate fails.

    Attributes:
        said: The message of the last candidate: the end of a command's output, a missed goal, an error.
    """

    said = ""

    @abstractmethod
    def fails(self, candidate: FailingModel) -> bool:
        """Test a candidate.

        Raises:
            DovetailError: The check itself cannot be run.
        """

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return plain data that identifies this check."""


class CommandCheck(Check):
    """A command that fails if the model does: it exits nonzero, or a signal ends it.

    Args:
        command: For a shell. `{model}` and `{data}` stand for the paths of the model and of an `.npz` of its inputs.
        seconds: Time limit of one run; a run that exceeds it has not failed.
        text: Text that its output must contain for a failure to count; empty for any.

    Raises:
        UsageError: The command names no model.
    """

    def __init__(self, command: str, seconds: float = 120.0, text: str = ""):
        if "{model}" not in command:
            raise UsageError(f"--check {command!r} names no model", "write {model} where the path of a model belongs")
        self._command, self._seconds, self._text = command, seconds, text

    def identity(self) -> dict[str, Any]:
        """Return the command and the text."""
        return {"check": self._command, "raises": self._text}

    def fails(self, candidate: FailingModel) -> bool:
        """Write the candidate to a new folder, and run the command."""
        with TemporaryFolder("reduce") as folder:
            model, data = folder / "model.onnx", folder / "inputs.npz"
            candidate.model.save(model)
            write_arrays(data, candidate.feeds)
            paths = {"{model}": str(model), "{data}": str(data)}
            command = self._command
            for name, path in paths.items():
                command = command.replace(name, shlex.quote(path))
            try:
                code, text = run_command(command, self._seconds)
            except TimeoutError as error:
                self.said = str(error)
                return False
        self.said = text.strip()[-_TAIL:]
        if code in _NOT_RUN:
            raise DovetailError(
                f"the check cannot be run (exit code {code}): {self.said}", "name a command that exists"
            )
        self._check_imports(text)
        return code != 0 and self._text in text

    def _check_imports(self, text: str) -> None:
        """Raise an error if the command lacks a module only because it does not import from its own folder."""
        missing = _MISSING.findall(text)
        folders = {Path(word).parent for word in shlex.split(self._command) if word.endswith(".py")} | {Path()}
        for name in missing[-1:]:
            for folder in folders:
                if (folder / name).is_dir() or (folder / f"{name}.py").is_file():
                    raise DovetailError(
                        f"the check imports '{name}' of {folder.absolute()}, and programs that are started here import "
                        "nothing from the folder of a script, or from the current one",
                        f"if that folder is yours, set PYTHONPATH={folder.absolute()}",
                    )


class BackendCheck(Check):
    """A backend's result misses a goal, or compiling and running it raises an error.

    Rows that judge the result do not calibrate it, if the candidate takes several that are independent.

    Args:
        request: Keyword arguments of `dovetail.compile` that make up the request.
        goals: The goals that the result must meet.
        text: Text that an error must contain for a failure to count; empty to check goals, not errors.
        plugins: The plugins.

    Raises:
        UsageError: There is neither a goal nor a text, or both.
    """

    def __init__(self, request: Mapping[str, Any], goals: Goals, text: str, plugins: PluginSet):
        if not goals and not text:
            raise UsageError("no condition of failure is given", "add a goal such as --min-snr 20, or --raises TEXT")
        if goals and text:
            raise UsageError(f"{goals} and --raises are two failures", "reduce one after the other")
        self._request, self._goals, self._text, self._plugins = dict(request), goals, text, plugins

    def identity(self) -> dict[str, Any]:
        """Return the request, the goals and the text."""
        request = {name: str(value) for name, value in sorted(self._request.items()) if value}
        return {"request": request, "goals": self._goals.as_dict(), "raises": self._text}

    def fails(self, candidate: FailingModel) -> bool:
        """Compile a candidate and run the result; a goal needs the original's outputs, too."""
        import dovetail

        data: object = [candidate.feeds] if candidate.feeds or not candidate.model.graph.inputs else None
        judging = data
        try:
            original = reference_runner(candidate.model, Context(Request(), plugins=self._plugins))
            if self._goals and data is not None:
                split = split_data(candidate.model, data, original)
                data, judging = split.part(Use.CALIBRATION), split.part(Use.JUDGMENT)
            compiled = dovetail.compile(
                candidate.model, **self._request, data=data, plugins=self._plugins, **_unverified(self._plugins)
            )
            run = runner(compiled)
            if self._text:
                if data is not None:
                    run(candidate.feeds)
                self.said = "no error"
                return False
            found = verify(candidate.model, original, run, judging, made=compiled.model)
            missed = self._goals.missed(found)
        except UsageError as error:
            self.said = error.message
            return bool(self._text) and self._text in str(error)
        except Exception as error:
            self.said = error.message if isinstance(error, DovetailError) else described(error)
            return bool(self._text) and (self._text in str(error) or self._text in described(error))
        self.said = "; ".join(map(str, missed)) or found.short()
        return bool(missed)


class FunctionCheck(Check):
    """A function of the caller.

    Args:
        function: Called with a model and its inputs; returns whether they fail.
    """

    def __init__(self, function: Callable[[Any, Mapping[str, np.ndarray]], bool]):
        self._function = function

    def identity(self) -> dict[str, Any]:
        """Return the function's name."""
        return {"check": f"{self._function.__module__}.{self._function.__qualname__}"}

    def fails(self, candidate: FailingModel) -> bool:
        """Call the function.

        Raises:
            DovetailError: It raises.
        """
        try:
            return bool(self._function(candidate.model, candidate.feeds))
        except Exception as error:
            raise DovetailError(f"the check raised {described(error)}", "return True or False for any model") from error


def write_arrays(path: Path | IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name to an `.npz` file; `numpy.savez` takes no name `file`.

    NumPy files support neither bfloat16 nor 8-bit floats; float32 represents all of their values.

    Raises:
        DovetailError: A name is too long for such a file.
    """
    import numpy as np

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            if len(name.encode("utf-8", "replace")) > LONGEST_NAME:
                raise DovetailError(
                    f"input '{name[:40]}...' has a name of {len(name)} characters, which no .npz file holds",
                    "rename the input",
                )
            plain = array if array.dtype.isbuiltin == 1 else array.astype(np.float32)
            plain = plain.astype("U") if plain.dtype.hasobject else plain
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(plain), allow_pickle=False)


def _unverified(plugins: PluginSet) -> dict[str, Any]:
    """Return the keyword that keeps `compile` from verifying, if the option that owns it is not left out."""
    return {"verify": False} if "verify" in plugins.registry.option else {}
