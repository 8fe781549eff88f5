"""The base class of passes and the stages they belong to."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes.context import Context
    from dovetail.plugin.registry import Registry


STAGES = (
    "normalize",
    "analyze",
    "place",
    "type",
    "calibrate",
    "quantize",
    "join",
    "outline",
    "emit",
    "load",
)


RENAMED_STAGES = {"normalise": "normalize", "analyse": "analyze", "quantise": "quantize"}
"""Names that stages had in the release before; passes that use one are warned of."""


@dataclass(frozen=True)
class Pass(ABC):
    """A transformation or analysis of a model. A subclass is a frozen dataclass, and its fields are its options.

    The model is valid before and after `run`. A pass has no state of its own: results go into the model, into remarks,
    or into an analysis.

    The docstring starts with one sentence and then shows an example, in the form

        Given:   y = Conv(x, w)   z = BatchNormalization(y, ...)
        Result:  z = Conv(x, w')

    Attributes:
        name: Its name in pipelines, in kebab case.
        stage: The stage it belongs to; None if it runs only in pipelines that name it.
        requires: Passes that must be installed and run before it.
        after: Passes that run before it if they are installed.
        before: Passes that run after it if they are installed.
        takes_anything: It accepts models that do not verify; a pipeline that starts with it starts unverified.
            A model that it leaves as it was is verified, unless the next pass takes anything, too.
    """

    name: ClassVar[str]
    stage: ClassVar[str | None] = None
    requires: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()
    takes_anything: ClassVar[bool] = False

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if cls.stage in RENAMED_STAGES:
            old, cls.stage = cls.stage, RENAMED_STAGES[cls.stage]
            renamed = f"stage {old!r} is called {cls.stage!r} now; the old name goes with the next release"
            warnings.warn(f"{cls.__qualname__}: {renamed}", FutureWarning, stacklevel=2)

    @abstractmethod
    def run(self, model: Model, ctx: Context) -> bool:
        """Change the model in place and call `model.touch()` on every change.

        Returns:
            Whether the model changed.
        """

    def __str__(self) -> str:
        from dovetail.passes.options import print_options

        return self.name + print_options(self)


def load_pass(registry: Registry, name: str) -> type[Pass]:
    """Return the class registered as pass `name`.

    Raises:
        DovetailError: None is registered, it fails to import, or it is not a pass of this name.
    """
    name = registry.pass_.current(name)
    found = registry.pass_[name]
    who = registry.pass_.title(name)
    if not (isinstance(found, type) and issubclass(found, Pass)):
        raise DovetailError(f"{who} is not a subclass of dovetail.passes.Pass: {found!r}")
    if getattr(found, "name", None) != name:
        raise DovetailError(f"{who} calls itself {getattr(found, 'name', None)!r}")
    if found.stage is not None and found.stage not in STAGES:
        raise DovetailError(f"{who} names an unknown stage {found.stage!r}; {', '.join(STAGES)}")
    for constraint in ("requires", "after", "before"):
        if not isinstance(getattr(found, constraint), tuple):
            raise DovetailError(f"{who}: {constraint} must be a tuple of pass names")
    return found


def summary_of(pass_: type[Pass]) -> str:
    """Return the first line of the docstring, or empty. (Python gives a dataclass without one its signature.)"""
    text = (pass_.__dict__.get("__doc__") or "").strip()
    return "" if text.startswith(f"{pass_.__name__}(") else text.partition("\n")[0]
