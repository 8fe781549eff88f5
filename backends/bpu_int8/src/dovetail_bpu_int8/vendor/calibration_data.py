"""Calibration samples named in a YAML file of the vendor's tools, as input data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.files import entries, seen
from dovetail.ir import name_of
from dovetail.plugin import DovetailError
from dovetail.text import pluralize

from dovetail_bpu_int8.vendor.asked import OTHER_DATA, names_in
from dovetail_bpu_int8.vendor.inputs import Change, normalization, words_of
from dovetail_bpu_int8.vendor.tree import Entries, FileError, Node, Scalar, as_plain

if TYPE_CHECKING:
    from dovetail.ir import Model

    from dovetail_bpu_int8.vendor.asked import VendorSettings


_OWN = {".npz", ".pb"}
_IMAGES = {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff"}
_RAW = ("float32", "uint8", "int8", "int16", "int32")
_Shapes = Mapping[str, tuple[int, ...] | None]
_RANDOM_SAMPLES, _SEED = 8, 0
_BRIGHT = 200  # of 255; a sample with less may be anything


@dataclass(frozen=True)
class CalibrationData:
    """Location of the samples, and their conversion to inputs.

    Attributes:
        place: Position of `cal_data_dir`.
        folders: The folders, one per input; empty for random numbers.
        types: The element type of raw files, by input.
        normalized: Mean and scale of each input's normalization; None without one.
    """

    place: Node
    folders: tuple[Path, ...] = ()
    types: tuple[str, ...] = ()
    normalized: tuple[Change | None, ...] = ()

    def of(self, model: Model, shapes: _Shapes) -> Any:
        """Return the samples for a model, in a form that `dovetail.input_data` accepts.

        Args:
            model: The model.
            shapes: The shapes of its inputs, in the order of the folders.

        Raises:
            DovetailError: Folders and inputs do not correspond, or a file does not match its input.
        """
        values = {name_of(value): value for value in model.graph.inputs}
        if not self.folders:
            return _random(shapes, values)
        names = list(shapes)
        if len(self.folders) != len(names):
            problem = f"cal_data_dir names {pluralize(len(self.folders), 'folder')}"
            problem = f"{problem}, and the model has {pluralize(len(names), 'input')}"
            raise FileError(self.place, problem, f"one folder per input, in the order of {'; '.join(names)}")
        files = [self._files(folder) for folder in self.folders]
        if len(files) == 1 and files[0][0].suffix in _OWN:
            return str(self.folders[0])
        for folder, found in zip(self.folders, files, strict=True):
            if len(found) != len(files[0]):
                problem = f"{folder} has {len(found)} samples, and {self.folders[0]} has {len(files[0])}"
                raise FileError(self.place, f"cal_data_dir: {problem}", "the samples of all inputs go together")
        return self._samples(names, files, list(shapes.values()), [values[name].dtype for name in names])

    def _files(self, folder: Path) -> list[Path]:
        found = sorted(path for path in entries(folder) if path.is_file() and not path.name.startswith("."))
        if not found:
            raise FileError(self.place, f"cal_data_dir: {folder} has no files", OTHER_DATA)
        return found

    def _samples(
        self, names: list[str], files: list[list[Path]], shapes: list[tuple[int, ...] | None], dtypes: list[Any]
    ) -> Iterator[Mapping[str, np.ndarray]]:
        for number in range(len(files[0])):
            yield {
                name: self._sample(index, files[index][number], shapes[index], dtypes[index])
                for index, name in enumerate(names)
            }

    def _sample(self, index: int, path: Path, shape: tuple[int, ...] | None, dtype: Any) -> np.ndarray:
        array = self._array(index, path, shape)
        if shape is not None and array.size == math.prod(shape):
            array = array.reshape(shape)
        change = self.normalized[index] if self.normalized else None
        if change is not None:
            try:
                array = (array.astype(np.float32) - change[0]) * change[1]
            except ValueError:
                numbers, has = max(one.size for one in change), "x".join(map(str, array.shape))
                problem = f"{path} has {has} numbers, and mean_value or scale_value has {numbers} channels"
                raise DovetailError(problem, "write one number, or one for each channel") from None
        wanted = dtype.numpy() if dtype is not None else np.float32
        return array.astype(wanted)

    def raw(self, index: int, path: Path) -> np.ndarray:
        """Return the numbers in a sample of an input, without a shape if the file has none.

        Raises:
            DovetailError: It is no array.
        """
        if path.suffix == ".npy":
            try:
                return np.load(seen(path), allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise DovetailError(f"{path}: not an array: {error}", "save it with numpy.save") from None
        folder = self.folders[index]
        kind = self.types[index] if self.types else "float32" if folder.name.endswith("_f32") else "uint8"
        return np.fromfile(seen(path), np.dtype(kind).newbyteorder("<"))

    def _array(self, index: int, path: Path, shape: tuple[int, ...] | None) -> np.ndarray:
        array = self.raw(index, path)
        if path.suffix == ".npy":
            return array
        if shape is None:
            raise FileError(self.place, f"{path.name} holds raw numbers, and the model's input has open extents",
                            "write input_shape, such as 1x3x224x224")  # fmt: skip
        if array.size != math.prod(shape):
            extents = "x".join(map(str, shape))
            problem = f"{path} has {path.stat().st_size} bytes, which are {array.size} numbers in {array.dtype.name}"
            hint = f"its input takes {extents} = {math.prod(shape)}; cal_data_type says how numbers are stored"
            raise DovetailError(problem, hint)
        return array


def read_calibration_data(tree: Entries, calibration: Entries, asked: VendorSettings) -> CalibrationData | None:
    """Read the settings of the samples; None if the file names none, or none that exist.

    Raises:
        FileError: A number or a type is malformed.
    """
    inputs = tree.get("input_parameters")
    inputs = inputs if isinstance(inputs, Entries) else Entries(tree.file, tree.line, ())
    given = calibration.get("cal_data_dir")
    if asked.on_random:
        return CalibrationData(given or calibration)
    if given is None or not list(names_in(given)):
        asked.lack_data(f"{tree.file}: cal_data_dir is not given, and thresholds come from data")
        return None
    if _is_true(calibration.get("preprocess_on")):
        asked.lack_data(f"{given.where}, preprocess_on: images are neither read nor resized here")
        return None
    folders = []
    for word in names_in(given):
        path = _found(word, asked.folder or Path())
        if path is None:
            asked.lack_data(f"{given.where}, cal_data_dir: '{word.raw}' is not there")
            return None
        image = next((one.name for one in entries(path) if one.suffix.lower() in _IMAGES), None)
        if image is not None:
            asked.lack_data(f"{given.where}, cal_data_dir: images such as {image} are not read here")
            return None
        folders.append(path)
    count = len(folders)
    data = CalibrationData(given, tuple(folders), _types(calibration, count), normalization(inputs, count, asked))
    _note_raw_pixels(data, inputs, asked)
    return data


def _note_raw_pixels(data: CalibrationData, inputs: Entries, asked: VendorSettings) -> None:
    """Note that samples are pixels that nothing normalizes, in a file that speaks of normalization."""
    kind = inputs.get("norm_type")
    if kind is None:
        return
    for index, folder in enumerate(data.folders):
        if data.normalized and data.normalized[index] is not None:
            continue
        first = next((path for path in entries(folder) if path.is_file() and path.suffix not in _OWN), None)
        if first is None:
            continue
        try:
            array = data.raw(index, first)
        except (DovetailError, OSError):
            continue  # calibration says what is wrong with it
        if _holds_pixels(array):
            why = f"{folder.name}/{first.name} holds pixels from 0 to 255, so that the threshold of its input is 255"
            advice = (
                "if the model takes normalized inputs, normalize the samples; if it normalizes by itself, all is well"
            )
            asked.note(f"{kind.where}: norm_type changes no sample here; {why}", advice)


def _holds_pixels(array: np.ndarray) -> bool:
    """Whether numbers are whole, and use most of the range from 0 to 255."""
    if not array.size or array.dtype.kind not in "iuf":
        return False
    low, high = float(array.min()), float(array.max())
    return low >= 0 and _BRIGHT <= high <= 255 and bool((array == np.round(array)).all())


def _found(word: Scalar, folder: Path) -> Path | None:
    """Find a folder relative to the file or to the current folder, like the vendor's tools."""
    path = Path(word.raw)
    candidates = [path] if path.is_absolute() else [folder / path, path]
    return next((one for one in candidates if seen(one).is_dir()), None)


def _is_true(node: Node | None) -> bool:
    return isinstance(node, Scalar) and as_plain(Scalar(node.file, node.line, node.raw)) is True


def _types(calibration: Entries, count: int) -> tuple[str, ...]:
    words = words_of(calibration, "cal_data_type")
    for word in words:
        if word.raw not in _RAW:
            raise FileError(word, f"cal_data_type: '{word.raw}' is not known", f"it is one of {', '.join(_RAW)}")
    kinds = [word.raw for word in words]
    return tuple(kinds * count if len(kinds) == 1 else kinds) if len(kinds) in (1, count) else ()


def _random(
    shapes: Mapping[str, tuple[int, ...] | None], values: Mapping[str, Any]
) -> Iterator[Mapping[str, np.ndarray]]:
    """Yield random samples, like the vendor's tool when it skips calibration."""
    rng = np.random.default_rng(_SEED)
    for _ in range(_RANDOM_SAMPLES):
        sample = {}
        for name, shape in shapes.items():
            if shape is None:
                hint = "write input_shape, such as 1x3x224x224"
                raise DovetailError(f"input '{name}' has open extents, which random numbers cannot fill", hint)
            dtype = values[name].dtype
            drawn = rng.standard_normal(shape).astype(np.float32)
            sample[name] = drawn.astype(dtype.numpy() if dtype is not None else np.float32)
        yield sample
