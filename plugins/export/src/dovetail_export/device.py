"""The executor `device`: a result runs elsewhere, by a command of the user, on files that are written and read here."""

from __future__ import annotations

import math
import shlex
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dovetail.errors import DovetailError
from dovetail.ir import dtype_of, name_of
from dovetail.plugin import CompiledModel, Executed, Executor, TemporaryFolder, run_command
from dovetail.text import printable
from dovetail_onnx.files.parsing import Malformed, parse_json
from dovetail_onnx.files.reading import UnreadableInput, read_input
from dovetail_runtime.feeds import DeclaredInputs, declared

from dovetail_export.exporting import export
from dovetail_export.runners.run import FOREIGN, read_tensors, write_tensors

if TYPE_CHECKING:
    import numpy as np

_PLACES = ("{folder}", "{inputs}", "{outputs}")
_TIMEOUT = 600.0  # seconds
_LAST_WORDS = 400  # characters
_EXAMPLE = "ssh board /opt/run {folder} {inputs} {outputs}"
_TIMES = "times.json"
_TIMED = "write '--repeat {repeat}' where the command calls run.py or dovetail_run"


class Device(Executor):
    """Runs a result on a board or in a simulator, by a command: `ssh board /opt/run {folder} {inputs} {outputs}`.

    The result is exported once, with `run.py`; every run writes a folder of tensors, calls the command, and reads
    another one (`docs/reference/exported.md`). The command is run without a shell, and is the user's: it is never read
    from a model or a result. Options of the result: `device`, the command, `device_timeout`, the most seconds of a
    call, 600 by default, and `threads`, for which the command may have a place.

    Args:
        compiled: A result, saved as it is.

    Raises:
        DovetailError: There is no command, or it names no place for the tensors.
    """

    def __init__(self, compiled: CompiledModel):
        self._command = shlex.split(str(compiled.options.get("device") or ""))
        if not self._command:
            raise DovetailError("there is no command that runs the result on a device", f"--device '{_EXAMPLE}'")
        if missing := [place for place in _PLACES if not any(place in word for word in self._command)]:
            raise DovetailError(f"the command for the device has no {missing[0]}", f"for example '{_EXAMPLE}'")
        self._timeout = float(cast("float", compiled.options.get("device_timeout") or _TIMEOUT))
        self._threads = str(compiled.options.get("threads") or 0)
        self._inputs = DeclaredInputs(compiled.model.graph)
        self._outputs = {name_of(value): declared(value) for value in compiled.model.graph.outputs}
        self._narrow = {
            name_of(value): dtype_of(value).numpy()
            for value in compiled.model.graph.outputs
            if declared(value).type in FOREIGN
        }
        self._compiled, self._folder = compiled, TemporaryFolder("device")
        self._exporting = threading.Lock()
        self._types: dict[str, str] | None = None

    def run(self, inputs: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Write the inputs, run the command, and read the outputs.

        Raises:
            DovetailError: The result cannot be exported; an input does not fit; the command cannot be run, fails, takes
                too long, or does not write the outputs as they are declared. The error has its last words.
        """
        return self._run(inputs, 0)[0]

    def timed(self, inputs: Mapping[str, object], runs: int) -> list[float]:
        """Return the seconds of runs, as the program on the device measures them: without starting and copying.

        Raises:
            DovetailError: See `run`; or the program writes no times.
        """
        return self._run(inputs, runs)[1]

    def _run(self, inputs: Mapping[str, object], repeat: int) -> tuple[dict[str, np.ndarray], list[float]]:
        """Return the outputs, and the seconds of so many further runs."""
        given, shipped = self._inputs.checked(inputs), self._folder.path / "shipped"
        with self._exporting:
            if self._types is None:
                description = export(self._compiled, shipped, "python")
                self._types = {one["name"]: one["type"] for one in description["inputs"]}
        with TemporaryFolder("tensors") as place:
            write_tensors(place / "inputs", {name: _bits(array) for name, array in given.items()}, self._types)
            values = {
                "{folder}": str(shipped),
                "{inputs}": str(place / "inputs"),
                "{outputs}": str(place / "outputs"),
                "{repeat}": str(repeat),
                "{threads}": self._threads,
            }
            said = self._called([_filled(word, values) for word in self._command])
            try:
                written = read_tensors(place / "outputs")
                outputs = {name: self._checked(name, written) for name in self._outputs}
            except (OSError, ValueError) as error:
                words = f"; it last said: {said}" if said else ""
                problem = f"the device gives no such outputs: {error}{words}"
                raise DovetailError(problem, "the command writes tensors.json into {outputs}") from None
            return outputs, _times_in(place / "outputs" / _TIMES, repeat) if repeat else []

    def executed(self) -> dict[str, Executed]:
        """Return nothing: how the device computes is not known here."""
        return {}

    def _called(self, command: list[str]) -> str:
        """Run the command, and return its last words."""
        try:
            done = run_command(command, self._timeout)
        except TimeoutError as error:
            way = "--device-timeout SECONDS (the option device_timeout) allows more"
            raise DovetailError(f"the command for the device gave {printable(str(error))}", way) from None
        except OSError as error:
            raise DovetailError(f"the command for the device cannot be run: {error}", f"'{_EXAMPLE}'") from None
        said = printable(" ".join(done.text.split())[-_LAST_WORDS:])
        if done.code:
            problem = f"the command for the device ended with {done.code}{': ' if said else ''}{said}"
            raise DovetailError(problem, f"it was called as: {shlex.join(command)}")
        return said

    def _checked(self, name: str, outputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return an output as it is declared.

        Raises:
            ValueError: It is missing, or has another type or shape.
        """
        if name not in outputs:
            raise ValueError(f"'{name}' is missing")
        value, array = self._outputs[name], outputs[name]
        if name in self._narrow and array.dtype.itemsize == self._narrow[name].itemsize:
            array = array.view(self._narrow[name])
        if not value.has_type_of(array):
            raise ValueError(f"'{name}' is {array.dtype.name} in place of {value.type}")
        if not value.has_shape(array.shape):
            raise ValueError(f"'{name}' has the shape {list(array.shape)} in place of {value.shape}")
        return array


def _times_in(path: Path, most: int) -> list[float]:
    """Return the seconds of runs that the program on the device wrote, at most so many.

    Raises:
        DovetailError: It wrote none, or something else.
    """
    if not path.exists():
        raise DovetailError(f"the runner reports no times: it writes no {_TIMES} into {{outputs}}", _TIMED)
    try:
        found = parse_json(read_input(path))
        seconds = found["seconds"] if isinstance(found, dict) and found.get("format") == "dovetail-times" else None
    except (Malformed, UnreadableInput, KeyError) as error:
        raise DovetailError(f"the runner reports no times: {_TIMES}: {error}", _TIMED) from None
    if not isinstance(seconds, list) or not seconds or not all(map(_is_time, seconds)):
        problem = f"the runner reports no times: {_TIMES} does not list the seconds of runs"
        raise DovetailError(problem, 'it holds {"format": "dovetail-times", "version": 1, "seconds": [0.012, ...]}')
    return [float(second) for second in seconds[:most]]


def _is_time(given: object) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool) and 0 < given < math.inf


def _bits(array: np.ndarray) -> np.ndarray:
    """Return an array of a type that NumPy lacks as unsigned integers."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.itemsize}")


def _filled(word: str, values: Mapping[str, str]) -> str:
    for place, text in values.items():
        word = word.replace(place, text)
    return word
