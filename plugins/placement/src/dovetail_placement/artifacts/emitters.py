"""Running emitters: checks of their results, and of files before these become part of the result."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from dovetail.errors import DovetailError
from dovetail.plugin import Artifact, Call, EmittedRegion, Emitter, EngineError, StandIn
from dovetail.plugin.loading import (
    SHARED,
    TOOL_PROGRESS,
    ArtifactFolder,
    class_of,
    described,
    foreign_output,
    own_output,
)
from dovetail.text import abbreviated, pluralize

from dovetail_placement.artifacts.reuse import MadeArtifacts, artifact_keys, holds_name

if TYPE_CHECKING:
    from dovetail.passes import Context


_T = TypeVar("_T")


class NotEmitted(Exception):
    """An emitter rejects a region, or fails.

    Attributes:
        why: Its message, with its name and distribution.
        nodes: The nodes at fault; empty if unknown.
    """

    def __init__(self, why: str, *nodes: str):
        super().__init__(why)
        self.why, self.nodes = why, frozenset(filter(None, nodes))


def emitter_class(name: str, ctx: Context) -> type[Emitter]:
    """Return the class of an emitter.

    Raises:
        DovetailError: It is not installed, or not an emitter.
    """
    return class_of(ctx.registry.emitter[name], ctx.registry.emitter.title(name), Emitter)


class Made(NamedTuple):
    """What an emitter made of a region.

    Attributes:
        artifact: The artifact.
        own: The folder with its files.
        shared: The folder with its shared files.
        folder: What removes the folders.
    """

    artifact: Artifact
    own: Path
    shared: Path
    folder: ArtifactFolder


def emitted(
    region: EmittedRegion,
    emitters: Iterable[str],
    ctx: Context,
    jointly: Mapping[tuple[str, str], Made | NotEmitted] = MappingProxyType({}),
) -> Artifact:
    """Run emitters on a region, and merge their artifacts in the folder of the region.

    Each emitter writes into its own folder; the files of all of them are then moved together.

    Args:
        region: A region of their backend, or the whole model.
        emitters: Their names.
        ctx: The context, with the emitters and the artifact folder.
        jointly: What joint emitters have answered, by emitter and region.

    Raises:
        NotEmitted: An emitter rejects the region, or fails.
        DovetailError: An emitter is not installed, or violates its contract.
    """
    assert ctx.outcome.artifacts is not None
    root = ctx.outcome.artifacts.root / region.backend.name
    shared: list[str] = []
    files: dict[str, str] = {}
    notes: list[str] = []
    facts: dict[str, object] = {}
    node: StandIn | Call | None = None
    for name in emitters:
        title = ctx.registry.emitter.title(name)
        answer = jointly.get((name, region.name)) or _made(name, region, title, ctx)
        if isinstance(answer, NotEmitted):
            raise answer
        made = answer.artifact
        if made.node is not None:
            if emitter_class(name, ctx).whole:
                raise DovetailError(f"{title} gives a node for the whole model of {region.backend.name}", _WHOLE)
            if node is not None:
                raise DovetailError(
                    f"{title} gives a second node for {region.name} of {region.backend.name}", _ONE_NODE
                )
            node = made.node
        notes += (f"{title}: {note}" for note in made.notes)
        facts |= made.facts
        if not made.files and not made.notes and made.node is None and ctx.files_wanted:
            notes.append(f"{title}: it made neither a file nor a node of {region.name}")
        for file in checked_files(made.files, answer.own, title):
            if file in files:
                raise DovetailError(f"{title} writes '{file}', and so does {files[file]}", _LEAVE_OUT)
            files[file] = title
            _link(answer.own / file, root / region.name / file)
        for file in checked_files(made.shared, answer.shared, title):
            _share(answer.shared / file, root / SHARED / file, title)
            shared.append(file)
    return Artifact(tuple(files), node, tuple(notes), facts, tuple(shared))


_LEAVE_OUT = "leave one of them out"


def _share(source: Path, target: Path, title: str) -> None:
    """Link a shared file, if no other region did so.

    Raises:
        DovetailError: Another emitter of the backend has a file of this name.
    """
    if not target.exists():
        _link(source, target)
    elif not filecmp.cmp(source, target, shallow=False):
        raise DovetailError(f"{title} writes '{SHARED}/{target.name}', and so does another emitter", _LEAVE_OUT)


def refusal_alone(region: EmittedRegion, emitters: Iterable[str], ctx: Context) -> NotEmitted | None:
    """Run emitters on part of a region, and discard what they make; return the first refusal, or None.

    Raises:
        DovetailError: An emitter is not installed, or violates its contract.
    """
    for name in emitters:
        title = ctx.registry.emitter.title(name)
        folder = ArtifactFolder()
        try:
            made = _asked(new_emitter(name, title, ctx), region, folder.root, title, ctx)
        except NotEmitted as refused:
            return refused
        checked_files(made.files, folder.root, title)
    return None


def _link(source: Path, target: Path) -> None:
    """Link a file, which may be large and is used again, or another name of one; copy it where that is impossible."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _made(name: str, region: EmittedRegion, title: str, ctx: Context) -> Made:
    """Return what an emitter makes of a region; what it made of the same one is used again."""
    emitter = new_emitter(name, title, ctx)
    version = tool_version(emitter, title)
    keys, known = artifact_keys(name, emitter, version, region, ctx), ctx.measured.of(MadeArtifacts)
    found = known.get(keys or ())
    if found is not None:
        remark_reuse(found.earlier, region, title, ctx)
        (made,), folder = found.artifacts, found.folder
    else:
        folder = ArtifactFolder()
        made = with_version(_asked(emitter, region, folder.root, title, ctx), version)
        files = checked_files(made.files, folder.root, title)
        if made.shared:
            raise DovetailError(f"{title} names files as shared", "only a `JointEmitter` shares files among regions")
        if keys is not None:
            about = f"{pluralize(len(region.nodes), 'node')} from '{next(iter(region.nodes), '')}' on, by {version}"
            key = keys.named if holds_name(made, folder.root, region.name) else keys.anywhere
            known.put(key, [made], files, folder, about)
    return Made(completed(made, region, version), folder.root, folder.root, folder)


def with_version(made: Artifact, version: str) -> Artifact:
    """Return an artifact with the version of its tool as a fact."""
    return replace(made, facts={"tool": version, **made.facts}) if version else made


def completed(made: Artifact, region: EmittedRegion, version: str) -> Artifact:
    """Return an artifact whose node has the attributes by which an execution provider finds the program."""
    if not isinstance(made.node, StandIn):
        return made
    attributes: dict[str, object] = {"main_context": 1, "embed_mode": 0}
    if made.files:
        attributes["ep_cache_context"] = f"artifacts/{region.backend.name}/{region.name}/{made.files[0]}"
    attributes |= {"partition_name": region.name, "source": region.backend.name}
    if version:
        attributes["ep_sdk_version"] = version
    attributes |= made.node.attributes
    return replace(made, node=replace(made.node, attributes=attributes))


def new_emitter(name: str, title: str, ctx: Context) -> Emitter:
    """Return a new object of an emitter's class.

    Raises:
        NotEmitted: It cannot be made.
    """
    found_class = emitter_class(name, ctx)
    try:
        with foreign_output(title):
            return found_class()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise NotEmitted(f"{title} failed: {described(error)}") from error


def remark_reuse(earlier: bool, region: EmittedRegion, title: str, ctx: Context) -> None:
    """Remark that what an emitter made earlier, of this region and those after it, is used again."""
    ctx.count("artifacts reused")
    if earlier:
        why = f"{title}: the artifact of its region is taken from the cache, where an earlier compilation left it"
        ctx.remark("passed", next(iter(region.nodes), ""), "artifact-cache", why)


def tool_version(emitter: Emitter, title: str) -> str:
    """Return the version of an emitter's tool; empty if it does not tell it, or fails."""
    with suppress(Exception), foreign_output(title):
        return str(emitter.version())
    return ""


_WHOLE = "a node stands for one region; an emitter that says `whole = True` only writes files"
_ONE_NODE = "one emitter of a backend may compile the region; the others only write files"


def _asked(emitter: Emitter, region: EmittedRegion, folder: Path, title: str, ctx: Context) -> Artifact:
    what = f"{region.name} of {region.backend.name}"
    made = guarded(lambda: emitter.emit(region, folder), what, ctx, title)
    check_artifact(made, title)
    return made


def guarded(call: Callable[[], _T], what: str, ctx: Context, title: str) -> _T:
    """Call an emitter, whose tools' lines are shown as progress of the compilation.

    Args:
        call: The call.
        what: The region or regions, for the progress.
        ctx: The context.
        title: The emitter, with its distribution.

    Raises:
        NotEmitted: It refuses, or fails.
    """
    try:
        with foreign_output(title), _progress_of_tools(what, ctx):
            return call()
    except DovetailError as error:
        raise refusal_of(error, title) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise NotEmitted(f"{title} failed: {described(error)}") from error


def refusal_of(error: DovetailError, title: str) -> NotEmitted:
    """Return an error of an emitter as a refusal."""
    nodes = error.nodes if isinstance(error, EngineError) else (error.node,)
    hint = f" ({error.hint})" if error.hint else ""
    return NotEmitted(f"{title}: {error.message}{hint}", *nodes)


def check_artifact(made: object, title: str) -> None:
    """Check what an emitter returned for a region.

    Raises:
        DovetailError: It is no artifact, or its facts are no plain data.
    """
    if (
        not isinstance(made, Artifact)
        or not all(isinstance(note, str) for note in made.notes)
        or not isinstance(made.node, StandIn | Call | None)
        or not _is_data(made.facts)
    ):
        raise DovetailError(
            f"{title} returns {made!r}", "`emit` returns `dovetail.plugin.Artifact`, whose facts are plain data"
        )


@contextmanager
def _progress_of_tools(what: str, ctx: Context) -> Iterator[None]:
    """Show the lines of progress of a tool as the progress of the compilation."""

    def show(line: str) -> None:
        if ctx.progress is not None:
            with own_output():
                ctx.progress(f"emit {what}: {abbreviated(line)}", 0, 0)

    token = TOOL_PROGRESS.set(show)
    try:
        yield
    finally:
        TOOL_PROGRESS.reset(token)


def _is_data(facts: object) -> bool:
    try:
        return isinstance(facts, Mapping) and bool(json.dumps(dict(facts)))
    except (TypeError, ValueError):
        return False


def checked_files(files: Iterable[str], folder: Path, title: str) -> list[str]:
    """Return files of an artifact, after checking that they are regular files in the emitter's folder.

    Raises:
        DovetailError: One of them is not.
    """
    found = []
    for file in files:
        path = PurePosixPath(file)
        if (
            path.is_absolute()
            or ".." in path.parts
            or not path.parts
            or any(part.startswith(".") for part in path.parts)
        ):
            raise DovetailError(f"{title} writes '{file}', which is outside of its folder", _OWN_FOLDER)
        real = folder / path
        if not real.exists():
            raise DovetailError(f"{title} names '{file}', which it did not write", _OWN_FOLDER)
        if real.is_symlink() or not real.is_file() or folder.resolve() not in real.resolve().parents:
            raise DovetailError(f"{title} names '{file}', which is no file of its own", _OWN_FOLDER)
        found.append(path.as_posix())
    return found


_OWN_FOLDER = "an emitter writes files into the folder that it is given, and names each of them"
