"""Running emitters: checks of their results, and of files before these become part of the result."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin import Artifact, Call, EmittedRegion, Emitter, EngineError, StandIn
from dovetail.plugin.loading import TOOL_PROGRESS, ArtifactFolder, class_of, described, foreign_output, own_output
from dovetail.text import abbreviated, pluralize

from dovetail_placement.artifacts.reuse import Made, MadeArtifacts, artifact_keys

if TYPE_CHECKING:
    from dovetail.passes import Context


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


def emitted(region: EmittedRegion, emitters: Iterable[str], ctx: Context) -> Artifact:
    """Run emitters on a region, and merge their artifacts in the folder of the region.

    Each emitter writes into its own folder; the files of all of them are then moved together.

    Args:
        region: A region of their backend, or the whole model.
        emitters: Their names.
        ctx: The context, with the emitters and the artifact folder.

    Raises:
        NotEmitted: An emitter rejects the region, or fails.
        DovetailError: An emitter is not installed, or violates its contract.
    """
    assert ctx.outcome.artifacts is not None
    target = ctx.outcome.artifacts.root / region.backend.name / region.name
    files: dict[str, str] = {}
    notes: list[str] = []
    facts: dict[str, object] = {}
    node: StandIn | Call | None = None
    for name in emitters:
        title = ctx.registry.emitter.title(name)
        made, own = _made(name, region, title, ctx)
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
        for file in _checked(made, own.root, title):
            if file in files:
                raise DovetailError(f"{title} writes '{file}', and so does {files[file]}", "leave one of them out")
            files[file] = title
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            _link(own.root / file, target / file)
    return Artifact(tuple(files), node, tuple(notes), facts)


def refusal_alone(region: EmittedRegion, emitters: Iterable[str], ctx: Context) -> NotEmitted | None:
    """Run emitters on part of a region, and discard what they make; return the first refusal, or None.

    Raises:
        DovetailError: An emitter is not installed, or violates its contract.
    """
    for name in emitters:
        title = ctx.registry.emitter.title(name)
        folder = ArtifactFolder()
        try:
            made = _asked(_new_emitter(name, title, ctx), region, folder.root, title)
        except NotEmitted as refused:
            return refused
        _checked(made, folder.root, title)
    return None


def _link(source: Path, target: Path) -> None:
    """Link a file, which may be large and is used again, or another name of one; copy it where that is impossible."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _made(name: str, region: EmittedRegion, title: str, ctx: Context) -> tuple[Artifact, ArtifactFolder]:
    """Return the artifact of an emitter and its folder; one that was made of the same region is used again."""
    emitter = _new_emitter(name, title, ctx)
    version = _version(emitter, title)
    keys, known = artifact_keys(name, emitter, version, region, ctx), ctx.measured.of(MadeArtifacts)
    found = known.get(keys)
    if found is not None:
        _remark_reuse(found, region, title, ctx)
        return _completed(found.artifact, region, version), found.folder
    folder = ArtifactFolder()
    made = _asked(emitter, region, folder.root, title)
    _checked(made, folder.root, title)
    if version:
        made = replace(made, facts={"tool": version, **made.facts})
    about = f"{pluralize(len(region.nodes), 'node')} from '{next(iter(region.nodes), '')}' on, by {version}"
    known.put(keys, made, folder, region.name, about)
    return _completed(made, region, version), folder


def _completed(made: Artifact, region: EmittedRegion, version: str) -> Artifact:
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


def _new_emitter(name: str, title: str, ctx: Context) -> Emitter:
    found_class = emitter_class(name, ctx)
    try:
        with foreign_output(title):
            return found_class()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise NotEmitted(f"{title} failed: {described(error)}") from error


def _remark_reuse(found: Made, region: EmittedRegion, title: str, ctx: Context) -> None:
    ctx.count("artifacts reused")
    if found.earlier:
        why = f"{title}: the artifact of its region is taken from the cache, where an earlier compilation left it"
        ctx.remark("passed", next(iter(region.nodes), ""), "artifact-cache", why)


def _version(emitter: Emitter, title: str) -> str:
    with suppress(Exception), foreign_output(title):
        return str(emitter.version())
    return ""


_WHOLE = "a node stands for one region; an emitter that says `whole = True` only writes files"
_ONE_NODE = "one emitter of a backend may compile the region; the others only write files"


def _asked(emitter: Emitter, region: EmittedRegion, folder: Path, title: str) -> Artifact:
    try:
        with foreign_output(title), _progress_of_tools(region):
            made = emitter.emit(region, folder)
    except DovetailError as error:
        nodes = error.nodes if isinstance(error, EngineError) else (error.node,)
        hint = f" ({error.hint})" if error.hint else ""
        raise NotEmitted(f"{title}: {error.message}{hint}", *nodes) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise NotEmitted(f"{title} failed: {described(error)}") from error
    whole = isinstance(made, Artifact) and all(isinstance(note, str) for note in made.notes)
    if not whole or not isinstance(made.node, StandIn | Call | None) or not _is_data(made.facts):
        raise DovetailError(
            f"{title} returns {made!r}", "`emit` returns `dovetail.plugin.Artifact`, whose facts are plain data"
        )
    return made


@contextmanager
def _progress_of_tools(region: EmittedRegion) -> Iterator[None]:
    """Show the lines of progress of a tool as the progress of the compilation."""
    progress = region.context.progress if region.context is not None else None

    def show(line: str) -> None:
        if progress is not None:
            with own_output():
                progress(f"emit {region.name} of {region.backend.name}: {abbreviated(line)}", 0, 0)

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


def _checked(made: Artifact, folder: Path, title: str) -> list[str]:
    """Return the files of an artifact, after checking that they are regular files in the emitter's folder."""
    found = []
    for file in made.files:
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
