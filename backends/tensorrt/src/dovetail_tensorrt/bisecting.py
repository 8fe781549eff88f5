"""Find the node that the builder cannot build, where it names none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin import EngineError
from dovetail_transforms.regions.extraction import extract
from dovetail_transforms.regions.regions import given_regions

from dovetail_tensorrt.builder import BuildSettings, build
from dovetail_tensorrt.parser import parse

if TYPE_CHECKING:
    from dovetail.ir.model import Model

    from dovetail_tensorrt.libraries import Library
    from dovetail_tensorrt.profiles.bounds import Bounds


_MOST_NODES = 5000


def last_of_unbuildable(region: Model, library: Library, profile: Mapping[str, Bounds], target: str) -> str:
    """The name of the node with which the nodes before it cannot be built any more; empty where nothing is found.

    Builders fail with an assertion of their own in places that no message names. The shortest part of the region, in
    its order, that fails ends with a node that can be placed elsewhere; finding it takes log2 n builds.

    Args:
        region: A region that does not build.
        library: What builds it.
        profile: The bounds of its inputs.
        target: The GPUs that it is for.
    """
    nodes = list(region.graph)
    if len(nodes) > _MOST_NODES:
        return ""

    def builds(number: int) -> bool:
        head, *_ = given_regions(region.graph, [nodes[:number], nodes[number:]])
        try:
            parsed = parse(extract(region, head), library)
            if parsed.verdict.ok:
                build(parsed, profile, BuildSettings("part", target))
        except EngineError:
            return False
        return parsed.verdict.ok

    built, failing = 0, len(nodes)
    try:
        while failing - built > 1:
            middle = (built + failing) // 2
            if builds(middle):
                built = middle
            else:
                failing = middle
    except DovetailError:  # a value between the parts has no type
        return ""
    return nodes[failing - 1].name or ""
