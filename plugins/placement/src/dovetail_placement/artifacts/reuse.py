"""Artifacts that are used again: of a region that was compiled in an earlier round, trial or program.

An artifact is found by all that it was made of: nodes, weights, borders, parameters, options, and the versions of tool
and emitter. The number of the region is left out, since it changes with the regions before it, unless the artifact
holds it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.files import seen
from dovetail.installed import version_of
from dovetail.plugin import Artifact, Call, Emitter, StandIn, input_data
from dovetail.plugin.loading import ArtifactFolder
from dovetail_onnx import ARTIFACTS, file_sha256, skeleton_of, tensor_chunks
from dovetail_onnx.files.source_state import source_state

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import EmittedRegion

_BYTES = "$bytes"
_CHUNK = 1 << 22


class Reused(NamedTuple):
    """Artifacts that were made before.

    Attributes:
        artifacts: That of a region, or of all regions that were compiled at once.
        folder: The folder with their files.
        earlier: Whether an earlier program made them.
    """

    artifacts: Sequence[Artifact]
    folder: ArtifactFolder
    earlier: bool = False


class Keys(NamedTuple):
    """The digests of what an artifact is made of, without and with the name of the region."""

    anywhere: str
    named: str


class MadeArtifacts:
    """The artifacts of one compilation by what they were made of, with their files; behind them the user's cache."""

    def __init__(self) -> None:
        self._known: dict[str, Reused] = {}
        self._cache = ARTIFACTS.open()

    def get(self, keys: Iterable[str]) -> Reused | None:
        """Return what is stored under one of these digests; None if nothing is, or files in the cache are damaged."""
        for key in keys:
            found = self._known.get(key) or self._from_cache(key)
            if found is not None:
                self._known[key] = found
                return found
        return None

    def put(self, key: str, made: Sequence[Artifact], files: Iterable[str], folder: ArtifactFolder, about: str) -> None:
        """Store artifacts under the digest of all that they were made of.

        Args:
            key: The digest.
            made: The artifact of a region, or of all regions that were compiled at once.
            files: The names of their files in the folder.
            folder: The folder.
            about: What they are, for people.
        """
        self._known[key] = Reused(made, folder)
        try:
            told = [_told(each) for each in made]
        except TypeError:  # attributes that are no plain data
            return

        def write(into: Path) -> Mapping[str, Any]:
            digests = {}
            for file in files:
                (into / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder.root / file, into / file)
                digests[file] = file_sha256(into / file)
            return {"artifacts": told, "files": digests}

        if self._cache is not None:
            self._cache.store(key, about, write)

    def _from_cache(self, key: str) -> Reused | None:
        found = self._cache.find(key) if self._cache is not None else None
        if self._cache is None or found is None:
            return None
        files, facts = found
        folder = ArtifactFolder()
        try:
            made = [_heard(each) for each in facts["artifacts"]]
            for file, digest in facts["files"].items():
                if (folder.root / file).resolve().is_relative_to(folder.root.resolve()):
                    (folder.root / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(files / file, folder.root / file)
                if file_sha256(folder.root / file) != digest:
                    raise ValueError("a file has changed")
            return Reused(made, folder, True)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self._cache.drop(key)
            return None


def artifact_keys(name: str, emitter: Emitter, version: str, region: EmittedRegion, ctx: Context) -> Keys | None:
    """Return digests of all that an artifact is made of; None if the emitter does not tell the version of its tool.

    Args:
        name: The emitter's name.
        emitter: The emitter.
        version: The version of its tool.
        region: The region.
        ctx: The context; of its options, those of the emitter's own distribution count.
    """
    if not version:
        return None
    owner = ctx.registry.emitter.entry(name).owner
    options = [
        (option, recorded) for option, recorded in sorted(ctx.request.options.items())
        if option in ctx.registry.option and ctx.registry.option.entry(option).owner == owner
    ]  # fmt: skip
    code = {each.__module__.partition(".")[0] for each in type(emitter).__mro__ if issubclass(each, Emitter)}
    state = source_state(tuple(sorted(code)))
    about = (name, version, owner, version_of(owner), state, ctx.files_wanted, emitter.whole)
    given = (region.backend.name, sorted(region.backend.chosen.items()), region.nodes, options)
    named = [(file, file_sha256(seen(Path(file)))) for file in sorted({*_files_in(given)})]
    values: tuple[object, ...] = (region.quantized_values, region.inputs, region.outputs, named)
    if emitter.reads_samples:
        samples = ctx.analysis(_Samples, ctx.outcome.decided)
        if not samples.digest:
            return None
        values = (*values, samples.digest)
    found = hashlib.sha256(repr((about, given, values)).encode())
    for model in (region.model, region.source):
        _add(model, found)
    anywhere = found.hexdigest()
    found.update(region.name.encode())
    return Keys(anywhere, found.hexdigest())


def _files_in(value: object) -> Iterator[str]:
    """Yield the texts in options that name files, such as tables for the tool, whose content counts."""
    if isinstance(value, str):
        with contextlib.suppress(OSError, ValueError):  # too long, or with characters that no path has
            if Path(value).is_file():
                yield value
    elif isinstance(value, Mapping):
        yield from _files_in(list(value.items()))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _files_in(one)


@dataclass(frozen=True)
class _Samples:
    """Analysis: a digest of what samples follow from, the data of the request and the model; empty if it has none."""

    digest: str

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> _Samples:
        """Hash data and model."""
        data = ctx.request.data
        digest = input_data(data).digest() if data is not None else ""
        if not digest:
            return cls("")
        found = hashlib.sha256(digest.encode())
        _add(model, found)
        return cls(found.hexdigest())


def _add(model: Model, found: hashlib._Hash) -> None:
    """Add a model to a digest, without its name, which has the region's number; weights are read one at a time."""
    skeleton = skeleton_of(model)
    name, skeleton.proto.graph.name = skeleton.proto.graph.name, ""
    found.update(skeleton.proto.SerializeToString(deterministic=True))
    skeleton.proto.graph.name = name
    for name, tensor in sorted(skeleton.weights.items()):
        found.update(name.encode())
        for chunk in tensor_chunks(tensor):
            found.update(chunk)


def holds_name(made: Artifact, folder: Path, region: str) -> bool:
    """Check whether an artifact depends on the name of its region: a file, a note, a fact or an attribute holds it."""
    number = region.rpartition("_")[2]
    name = re.compile(rf"region_?{re.escape(number)}(?![0-9])".encode())
    attributes = made.node.attributes if made.node is not None else {}
    if any(name.search(text.encode()) for text in (str(dict(attributes)), *made.notes, str(dict(made.facts)))):
        return True
    return any(_found(name, folder / file) for file in made.files)


def _found(name: re.Pattern[bytes], path: Path) -> bool:
    """Search a file, which may be large, with what reaches over the end of a chunk."""
    kept = b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            if name.search(kept + chunk):
                return True
            kept = chunk[-32:]
    return False


def _told(made: Artifact) -> dict[str, Any]:
    """Return an artifact as plain data.

    Raises:
        TypeError: An attribute is none.
    """
    node = None
    if made.node is not None:
        fields = {**vars(made.node), "attributes": dict(made.node.attributes)}
        node = json.loads(json.dumps([type(made.node).__name__, fields], default=_packed))
    lists = {"files": list(made.files), "notes": list(made.notes), "shared": list(made.shared)}
    return {**lists, "node": node, "facts": dict(made.facts)}


def _packed(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    raise TypeError(type(value).__name__)


def _heard(told: Mapping[str, Any]) -> Artifact:
    """Return the artifact that `_told` returned as plain data."""
    node: StandIn | Call | None = None
    if told["node"] is not None:
        kind, fields = told["node"]
        attributes = {
            name: base64.b64decode(value[_BYTES]) if isinstance(value, dict) else value
            for name, value in fields.pop("attributes").items()
        }
        fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        node = {"StandIn": StandIn, "Call": Call}[kind](attributes=attributes, **fields)
    return Artifact(tuple(told["files"]), node, tuple(told["notes"]), told["facts"], tuple(told["shared"]))
