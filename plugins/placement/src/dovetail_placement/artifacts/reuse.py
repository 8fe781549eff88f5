"""Artifacts that are used again: a region that an emitter has compiled in an earlier round or trial."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from dovetail.plugin.loading import ArtifactFolder
from dovetail_onnx.saving import tensor_chunks
from dovetail_onnx.skeleton import skeleton_of

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import Artifact, EmittedRegion


class MadeArtifacts:
    """The artifacts of one compilation by what they were made of, with their files."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Artifact, ArtifactFolder]] = {}

    def get(self, key: str) -> tuple[Artifact, ArtifactFolder] | None:
        """Return the artifact of a key and the folder with its files; None if there is none."""
        return self._known.get(key) if key else None

    def put(self, key: str, made: Artifact, folder: ArtifactFolder) -> None:
        """Store an artifact, unless its key is empty."""
        if key:
            self._known[key] = made, folder


def artifact_key(emitter: str, version: str, region: EmittedRegion) -> str:
    """Return a digest of all that an artifact is made of; empty if the emitter does not tell the version of its tool.

    Args:
        emitter: The emitter's name.
        version: The version of its tool.
        region: The region.
    """
    if not version:
        return ""
    options = region.context.request.options if region.context is not None else {}
    about = (emitter, version, region.name, region.backend.name, sorted(region.backend.chosen.items()), region.nodes)
    values = (region.quantized_values, region.inputs, region.outputs, options)
    found = hashlib.sha256(repr((about, values)).encode())
    for model in (region.model, region.source):
        _add(model, found)
    return found.hexdigest()


def _add(model: Model, found: hashlib._Hash) -> None:
    """Add a model to a digest; weights are read one at a time."""
    skeleton = skeleton_of(model)
    found.update(skeleton.proto.SerializeToString(deterministic=True))
    for name, tensor in sorted(skeleton.weights.items()):
        found.update(name.encode())
        for chunk in tensor_chunks(tensor):
            found.update(chunk)
