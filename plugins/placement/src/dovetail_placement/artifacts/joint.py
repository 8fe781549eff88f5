"""Emitters that compile all regions of their backend at once, and the refusals among their answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.plugin import Artifact, EngineError, JointEmitter
from dovetail.plugin.loading import SHARED, ArtifactFolder
from dovetail.text import pluralize

from dovetail_placement.artifacts.emitters import (
    Made,
    NotEmitted,
    check_artifact,
    checked_files,
    completed,
    guarded,
    new_emitter,
    refusal_alone,
    refusal_of,
    remark_reuse,
    tool_version,
    with_version,
)
from dovetail_placement.artifacts.refused_parts import Search
from dovetail_placement.artifacts.reuse import MadeArtifacts, artifact_keys

if TYPE_CHECKING:
    from dovetail.passes import Context
    from dovetail.plugin import EmittedRegion


class _Answer(NamedTuple):
    """What an emitter answered for all regions; files are in `folder / region.name` and `folder / SHARED`."""

    artifacts: Sequence[Artifact | NotEmitted]
    folder: ArtifactFolder


def emitted_jointly(
    name: str, regions: Sequence[EmittedRegion], ctx: Context
) -> dict[tuple[str, str], Made | NotEmitted]:
    """Run a joint emitter on all regions of its backend; the same regions are compiled once.

    Raises:
        DovetailError: It is not installed, or violates its contract.
    """
    title = ctx.registry.emitter.title(name)
    try:
        emitter = new_emitter(name, title, ctx)
    except NotEmitted as refused:
        return {(name, region.name): refused for region in regions}
    assert isinstance(emitter, JointEmitter), "its caller checks"
    version = tool_version(emitter, title)
    key, known = _key(name, emitter, version, regions, ctx), ctx.measured.of(MadeArtifacts)
    found = known.get((key,)) if key else None
    if found is not None:
        remark_reuse(found.earlier, regions[0], title, ctx)
        answer = _Answer(found.artifacts, found.folder)
    else:
        answer = _compiled(name, emitter, title, regions, ctx)
        made = [with_version(each, version) for each in answer.artifacts if isinstance(each, Artifact)]
        if len(made) == len(regions):
            answer = answer._replace(artifacts=made)
            files = [f"{region.name}/{file}" for region, each in zip(regions, made) for file in each.files]
            files += sorted({f"{SHARED}/{file}" for each in made for file in each.shared})
            if key:
                about = f"{pluralize(len(regions), 'region')} of {regions[0].backend.name}, by {version}"
                known.put(key, made, files, answer.folder, about)
    root = answer.folder.root
    return {
        (name, region.name): each
        if isinstance(each, NotEmitted)
        else Made(completed(each, region, version), root / region.name, root / SHARED, answer.folder)
        for region, each in zip(regions, answer.artifacts, strict=True)
    }


def _key(name: str, emitter: JointEmitter, version: str, regions: Sequence[EmittedRegion], ctx: Context) -> str:
    """Return the digest of all that the artifacts are made of; empty if they are not used again."""
    found = hashlib.sha256(b"jointly")
    for region in regions:
        keys = artifact_keys(name, emitter, version, region, ctx)
        if keys is None:
            return ""
        found.update(keys.named.encode())
    return found.hexdigest()


def _compiled(name: str, emitter: JointEmitter, title: str, regions: Sequence[EmittedRegion], ctx: Context) -> _Answer:
    """Ask the emitter, and check its answer.

    Raises:
        DovetailError: It violates its contract.
    """
    folder = ArtifactFolder()
    folders, shared = [folder.root / region.name for region in regions], folder.root / SHARED
    for path in (*folders, shared):
        path.mkdir()
    what = f"{pluralize(len(regions), 'region')} of {regions[0].backend.name}"
    try:
        made = guarded(lambda: emitter.emit_all(regions, folders, shared), what, ctx, title)
    except NotEmitted as refused:
        return _Answer(_at_fault(name, regions, refused, ctx), folder)
    if not isinstance(made, Sequence) or len(made) != len(regions):
        raise DovetailError(f"{title} returns {made!r} for {what}", "`emit_all` returns an artifact for each region")
    found: list[Artifact | NotEmitted] = []
    for own, each in zip(folders, made):
        if isinstance(each, EngineError):
            found.append(refusal_of(each, title))
            continue
        check_artifact(each, title)
        checked_files(each.files, own, title)
        checked_files(each.shared, shared, title)
        if each.shared and not each.files:
            raise DovetailError(f"{title} names shared files for {own.name}, and none of its own", _ONE_OF_ITS_OWN)
        found.append(each)
    return _Answer(found, folder)


_ONE_OF_ITS_OWN = "an engine finds a program by the files of its region"


def _at_fault(
    name: str, regions: Sequence[EmittedRegion], refused: NotEmitted, ctx: Context
) -> list[Artifact | NotEmitted]:
    """Refuse the regions that a failure names, or else those that are refused alone, or else the last one.

    The others have no artifact: all are compiled again in the next round.
    """
    inside = [{*region.nodes, *(node.name or "" for node in region.model.graph)} for region in regions]
    if any(refused.nodes & names for names in inside):
        return [refused if refused.nodes & names else Artifact() for names in inside]
    effort = ctx.measured.of(Search)
    found: list[Artifact | NotEmitted] = []
    for region in regions if len(regions) > 1 else ():
        if effort.is_over:
            break
        effort.left -= 1
        found.append(refusal_alone(region, [name], ctx) or Artifact())
    found += [Artifact()] * (len(regions) - len(found))
    if not any(isinstance(each, NotEmitted) for each in found):
        alone = (
            f" (of {len(regions)} regions that are compiled alone, this is the last one)" if len(regions) > 1 else ""
        )
        found[-1] = NotEmitted(f"{refused.why}{alone}")
    return found
