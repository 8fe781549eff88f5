"""The base class of passes, and the stages of a pipeline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dovetail.errors import DovetailError
from dovetail.planning.placement import get_placement
from dovetail.plugin import renamed
from dovetail.plugin.renamed import now_called

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.plugin.context import Context
    from dovetail.plugin.loading.registry import Registry


STAGES = ("normalize", "analyze", "place", "type", "calibrate", "quantize", "join", "outline", "emit", "load")


@dataclass(frozen=True)
class Pass(ABC):
    """A transformation or analysis of a model. A subclass with options is a frozen dataclass whose fields they are.

    The model is valid before and after `run`. A pass is stateless: its results go into the model, into remarks, or into
    an analysis.

    The docstring starts with one sentence, followed by an example in the form

        Given:   y = Conv(x, w)   z = BatchNormalization(y, ...)
        Result:  z = Conv(x, w')

    Attributes:
        name: Its name in pipelines, in kebab case.
        stage: The stage it belongs to; None if it runs only in pipelines that name it.
        for_backend: The backend that it is for: compilations that do not choose this backend leave the pass out; see
            `own_nodes`. Empty for a pass that is for all. `registry.pass_(name, target, for_backend=...)` may say it,
            too: then they do not even import it.
        requires: Passes that must be installed and run before it.
        after: Passes that run before it, if installed.
        before: Passes that run after it, if installed.
        takes_anything: Whether it accepts invalid models; a pipeline that starts with it skips the initial
            verification. A model that it leaves unchanged is verified, unless the next pass also accepts invalid
            models.
    """

    name: ClassVar[str]
    stage: ClassVar[str | None] = None
    for_backend: ClassVar[str] = ""
    requires: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()
    takes_anything: ClassVar[bool] = False

    @abstractmethod
    def run(self, model: Model, ctx: Context) -> bool:
        """Transform the model in place; call `model.touch()` after every change.

        Returns:
            Whether the model changed.
        """

    def own_nodes(self, model: Model) -> list[ir.Node]:
        """Return the nodes of the main graph that are placed on its backend."""
        placed = ((node, get_placement(node)) for node in model.graph)
        return [node for node, place in placed if place is not None and place.backend == self.for_backend]

    def __str__(self) -> str:
        from dovetail.plugin.pass_options import print_options

        return self.name + print_options(self)


def load_pass(registry: Registry, name: str) -> type[Pass]:
    """Return the class registered as pass `name`.

    Raises:
        DovetailError: No such pass is registered, it fails to import, or it is not a pass of this name.
    """
    found = registry.pass_[name]
    title = registry.pass_.title(name)
    if not (isinstance(found, type) and issubclass(found, Pass)):
        raise DovetailError(f"{title} is not a subclass of dovetail.passes.Pass: {found!r}")
    if getattr(found, "name", None) != name:
        raise DovetailError(f"{title} calls itself {getattr(found, 'name', None)!r}")
    if found.stage is not None and found.stage not in STAGES:
        why = f"{title} names an unknown stage {found.stage!r}{now_called(found.stage, renamed.STAGES, STAGES)}"
        raise DovetailError(why, f"stages: {', '.join(STAGES)}")
    if (said := registry.pass_.entry(name).for_backend) not in ("", found.for_backend):
        raise DovetailError(f"{title} is registered for backend '{said}', and its class for '{found.for_backend}'")
    for constraint in ("requires", "after", "before"):
        if not isinstance(getattr(found, constraint), tuple):
            raise DovetailError(f"{title}: {constraint} must be a tuple of pass names")
    return found
