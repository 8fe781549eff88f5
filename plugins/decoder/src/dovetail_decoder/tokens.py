"""Prompts as token ids: texts that the folder's own tokenizer reads, or ids."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.plugin import TemporaryFolder
from dovetail.text import printable
from dovetail_onnx.files.parsing import parse_json
from dovetail_onnx.files.reading import read_input
from dovetail_runtime.data.sources import read_data

from dovetail_decoder.foreign_files import copy_tokenizer, inside

if TYPE_CHECKING:
    import numpy as np

    from dovetail_decoder.folder import GeneratorFolder

_IDS, _MASK = "input_ids", "attention_mask"
_TOKENIZER = "tokenizer.json"
_FORMS = (
    "give texts, one a line (.txt) or a list (.json), or token ids: lists (.json), an array (.npy), or arrays by name "
    "(.npz) with input_ids, one row for each prompt"
)


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        ids: Its token ids, of one axis.
        where: Where it comes from, for messages.
        others: Other inputs that the model needs for it, such as `pixel_values`, with a first axis of 1.
    """

    ids: np.ndarray
    where: str
    others: Mapping[str, np.ndarray] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the arguments that make it again, for another process."""
        return {**vars(self), "others": dict(self.others)}


def read_prompts(data: object, folder: GeneratorFolder) -> list[Prompt]:
    """Return the prompts in `data`, as token ids that the model can take.

    Args:
        data: The path of a file (`.txt`, `.json`, `.npy`, `.npz`), an array of ids, arrays by name, or a list of texts
            or of ids.
        folder: The folder, whose tokenizer reads texts.

    Raises:
        UsageError: The data has none of these forms.
        DovetailError: It holds no prompt, the tokenizer fails, an id is unknown to the model, or a prompt is longer
            than the model's context.
    """
    prompts = list(_prompts(data, folder))
    name = str(data) if isinstance(data, (str, Path)) else "the data"
    if not prompts:
        raise DovetailError(f"{name} holds no prompt", _FORMS)
    for prompt in prompts:
        _check(prompt, folder)
    return prompts


def _prompts(data: object, folder: GeneratorFolder) -> Iterator[Prompt]:
    if isinstance(data, (str, Path)):
        path = Path(data)
        if path.suffix == ".txt":
            yield from _texts_in(path, folder)
        elif path.suffix == ".json":
            yield from _listed(_document(path), str(path), folder)
        elif path.suffix in (".npy", ".npz") and path.is_file():
            for arrays, where in read_data(path, [_IDS]):
                yield from _rows(arrays, where)
        else:
            raise UsageError(f"{path} is no file of prompts", _FORMS)
    elif isinstance(data, Mapping):
        yield from _rows(data, "the data")
    elif hasattr(data, "__array__"):
        yield from _rows({_IDS: data}, "the data")
    elif isinstance(data, Sequence):
        yield from _listed(data, "the data", folder)
    else:
        raise UsageError(f"prompts cannot be {type(data).__name__}", _FORMS)


def _texts_in(path: Path, folder: GeneratorFolder) -> Iterator[Prompt]:
    try:
        lines = read_input(path).decode().splitlines()
    except UnicodeDecodeError as error:
        raise DovetailError(f"{path} is no text: {error}", "save it as UTF-8") from None
    texts = {number: line for number, line in enumerate(lines, start=1) if line.strip()}
    encode = _encoder(folder) if texts else None
    for number, line in texts.items():
        assert encode is not None
        yield _encoded(encode, line, f"{path}:{number}")


def _document(path: Path) -> Any:
    try:
        found = parse_json(read_input(path))
    except ValueError as error:
        raise DovetailError(f"{path} is no JSON: {error}", _FORMS) from None
    return found.get("prompts", found.get(_IDS)) if isinstance(found, dict) else found


def _listed(found: object, where: str, folder: GeneratorFolder) -> Iterator[Prompt]:
    """Yield the prompts of a list of texts, of a list of lists of ids, or of one list of ids."""
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise UsageError(f"{where} holds {type(found).__name__} and no list of prompts", _FORMS)
    if found and all(type(one) is int for one in found):
        found = [found]
    encode = None
    for number, one in enumerate(found):
        name = f"{where}, prompt {number + 1}"
        if isinstance(one, str):
            encode = encode or _encoder(folder)
            yield _encoded(encode, one, name)
        else:
            yield Prompt(_as_ids(one, name), name)


def _rows(arrays: Mapping[str, Any], where: str) -> Iterator[Prompt]:
    """Yield one prompt for each row; positions that the mask leaves out are no part of it."""
    import numpy as np

    if _IDS not in arrays:
        raise UsageError(f"{where} has no array '{_IDS}', only {', '.join(arrays) or 'none'}", _FORMS)
    ids = np.atleast_2d(np.asarray(arrays[_IDS]))
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise UsageError(f"{where}: '{_IDS}' is {ids.dtype} {list(ids.shape)}", "give integers, a row for each prompt")
    mask = np.asarray(arrays.get(_MASK, np.ones(ids.shape, np.int64)))
    if mask.shape != ids.shape:
        raise UsageError(f"{where}: '{_MASK}' is {list(mask.shape)}, '{_IDS}' {list(ids.shape)}", "give both alike")
    others = {name: np.asarray(array) for name, array in arrays.items() if name not in (_IDS, _MASK)}
    for name, array in others.items():
        if array.ndim < 1 or len(array) != len(ids):
            raise UsageError(
                f"{where}: '{name}' is {list(array.shape)}, and there are {len(ids)} prompts", "give a row for each"
            )
    for row, tokens in enumerate(ids):
        place = f"{where}, row {row}" if len(ids) > 1 else where
        real = tokens[mask[row].astype(bool)].astype(np.int64)
        yield Prompt(real, place, {name: array[row : row + 1] for name, array in others.items()})


def _as_ids(given: object, where: str) -> np.ndarray:
    import numpy as np

    if not isinstance(given, Sequence) or not all(type(one) is int for one in given):
        raise UsageError(f"{where} is {printable(repr(given))[:60]}: neither a text nor token ids", _FORMS)
    try:
        return np.array(given, np.int64)
    except OverflowError:
        raise UsageError(
            f"{where}: a token id does not fit 64 bits", "give the ids of the folder's tokenizer"
        ) from None


def _encoded(encode: Callable[[str], Sequence[int]], text: str, where: str) -> Prompt:
    import numpy as np

    try:
        ids = encode(text)
    except Exception as error:  # whatever the tokenizer's own code raises
        raise DovetailError(
            f"{where}: the tokenizer fails: {printable(error)}", "give token ids instead: .npy or .json"
        ) from None
    return Prompt(np.asarray(ids, np.int64), where)


def _encoder(folder: GeneratorFolder) -> Callable[[str], Sequence[int]]:
    """Return the folder's tokenizer as a function.

    Raises:
        DovetailError: It cannot be loaded, or no library reads it here.
    """
    file = folder.path / _TOKENIZER
    ids = "give token ids instead: .npy or .json"
    if file.is_file():
        inside(folder.path, file)
        try:
            from tokenizers import Tokenizer
        except ImportError:
            pass
        else:
            try:
                tokenizer = Tokenizer.from_file(str(file))
            except Exception as error:  # the library raises plain exceptions
                raise DovetailError(f"{file} cannot be read: {printable(error)}", ids) from None
            return lambda text: tokenizer.encode(text).ids
    encode = _generators_encoder(folder.path)
    if encode is not None:
        return encode
    if file.is_file():
        raise DovetailError(f"nothing reads {file} here", f"pip install 'dovetail-decoder[tokenizers]', or {ids}")
    raise DovetailError(f"{folder.path} has no {_TOKENIZER}", f"copy it from the source of the export, or {ids}")


def _generators_encoder(folder: Path) -> Callable[[str], Sequence[int]] | None:
    """Return the tokenizer of onnxruntime-genai; None if it is not installed.

    It reads copies of the folder's texts, with a configuration that names no libraries, and never its models.
    """
    from dovetail_onnx.native_runtime import onnx_runtime

    try:
        onnx_runtime()  # its library has to be there first
        genai = importlib.import_module("onnxruntime_genai")
    except ImportError:
        return None
    place = TemporaryFolder("tokenizer")
    try:
        genai.disable_telemetry_events()
        copy_tokenizer(folder, place.path)
        tokenizer = genai.Tokenizer(str(place.path))
    except TypeError:  # of an earlier version, which loads the model with its tokenizer
        raise DovetailError(
            f"{folder}: this version of onnxruntime-genai loads no tokenizer without its model",
            "pip install -U onnxruntime-genai, or give token ids instead: .npy or .json",
        ) from None
    except Exception as error:  # the library raises RuntimeError and its own
        raise DovetailError(
            f"{folder}: onnxruntime-genai cannot read its tokenizer: "
            f"{printable(str(error).replace(str(place.path), str(folder)))}",
            "give token ids instead: .npy or .json",
        ) from None
    finally:
        place.cleanup()
    return lambda text: list(map(int, tokenizer.encode(text)))


def _check(prompt: Prompt, folder: GeneratorFolder) -> None:
    """Check that the model can take a prompt."""
    if not len(prompt.ids):
        raise DovetailError(f"{prompt.where} holds no token", "leave the prompt out")
    low, high = int(prompt.ids.min()), int(prompt.ids.max())
    if low < 0 or folder.vocabulary is not None and high >= folder.vocabulary:
        wrong = low if low < 0 else high
        known = f"0 to {folder.vocabulary - 1}" if folder.vocabulary is not None else "0 and above"
        raise DovetailError(
            f"{prompt.where}: token id {wrong} is none of the model, which has {known}",
            f"use the tokenizer of the folder, or correct the vocabulary in {folder.config}",
        )
    if folder.context is not None and len(prompt.ids) > folder.context:
        raise DovetailError(
            f"{prompt.where} has {len(prompt.ids)} tokens, and the model's context holds {folder.context}",
            "split the prompt",
        )
