"""What one entry of an operator file says: a signature, and how shapes, kernels and decompositions follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail_schemas import OperatorFacts


@dataclass(frozen=True, slots=True)
class Argument:
    """An input or an attribute.

    Attributes:
        name: Its name.
        type: `Tensor` or `Tensor[]` of an input; else the type of an attribute: `int`, `float[]`, `IntArray`, ...
        has_default: Whether callers may leave it out.
        default: The value then; a DataType, DataLayout or Place is a text.
    """

    name: str
    type: str
    has_default: bool = False
    default: object = None

    @property
    def is_tensor(self) -> bool:
        """Whether it is an input."""
        return self.type.startswith("Tensor")

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return self.type.endswith("[]")


@dataclass(frozen=True, slots=True)
class Output:
    """A result.

    Attributes:
        name: Its name.
        type: `Tensor` or `Tensor[]`.
        size: How many tensors a list has, as an expression (`x.size()`); empty where it does not say.
    """

    name: str
    type: str = "Tensor"
    size: str = ""

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return self.type.endswith("[]")


@dataclass(frozen=True, slots=True)
class Call:
    """A function with the names of the arguments that it gets.

    Attributes:
        function: Its name.
        arguments: The names.
    """

    function: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """What decides about a part of a kernel's key: the first that is known, or what all of them promote to.

    Attributes:
        names: Arguments, or literals such as `DataType::FLOAT32`; `complex(x)` is the complex type beside that of x.
        ordered: Whether the first that is known wins (`x > y`); otherwise all of them count (`x, y`).
    """

    names: tuple[str, ...] = ()
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class InferMeta:
    """The function that computes shape, type and layout of the results.

    Attributes:
        call: The function, with its arguments.
        rules: The other keys, which only distributed execution reads, as texts.
    """

    call: Call
    rules: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """How the operator is executed.

    Attributes:
        functions: The names of kernels, each with the kinds of tensors that it takes and gives (`dense -> dense`);
            empty where any.
        parameters: The names of the arguments that kernels get.
        data_type: What decides about the element type of the key.
        backend: What decides about the device.
        layout: What decides about the layout.
        force_backend: The attribute that names a device.
    """

    functions: tuple[tuple[str, str], ...]
    parameters: tuple[str, ...]
    data_type: Candidates = Candidates()
    backend: Candidates = Candidates()
    layout: Candidates = Candidates()
    force_backend: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One operator, or the gradient of one.

    Attributes:
        name: Its name.
        args: Inputs, then attributes.
        outputs: Results.
        where: File and line.
        infer_meta: How results look; None for composites and what `invoke` replaces.
        kernel: How it is executed; None where it has no kernel of its own.
        composite: The function that builds it of other operators; None without one.
        body: The same as a text of ONNX nodes.
        invoke: The operator that is called instead.
        forward: Of a gradient, the entry that it belongs to, as written there: name, args and outputs.
        backward: The name of its gradient.
        inplace: Pairs of input and output that may share memory.
        view: Pairs of input and output that share it wherever nothing else does.
        optional: Inputs and outputs that may be absent.
        intermediate: Outputs that only the gradient reads.
        no_need_buffer: Inputs of which only shape and type are read.
        skip_transform: Inputs that are not converted to the type of the kernel.
        support_trans_dtype: Inputs that may be cast when a kernel is chosen.
        traits: Words about the operator.
        interfaces: More of them.
    """

    name: str
    args: tuple[Argument, ...]
    outputs: tuple[Output, ...]
    where: str
    infer_meta: InferMeta | None = None
    kernel: Kernel | None = None
    composite: Call | None = None
    body: str = ""
    invoke: Call | None = None
    forward: Entry | None = None
    backward: str = ""
    inplace: tuple[tuple[str, str], ...] = ()
    view: tuple[tuple[str, str], ...] = ()
    optional: frozenset[str] = frozenset()
    intermediate: frozenset[str] = frozenset()
    no_need_buffer: frozenset[str] = frozenset()
    skip_transform: frozenset[str] = frozenset()
    support_trans_dtype: frozenset[str] = frozenset()
    traits: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The arguments that are tensors."""
        return tuple(arg for arg in self.args if arg.is_tensor)

    @property
    def attributes(self) -> tuple[Argument, ...]:
        """The other arguments."""
        return tuple(arg for arg in self.args if not arg.is_tensor)


@dataclass(frozen=True, slots=True)
class OperatorFile:
    """All entries of one file.

    Attributes:
        domain: The domain of its operators.
        version: The version of the domain.
        entries: Its operators, by name.
        gradients: Its gradients, by name.
        functions: The module in which its functions are, if it names one.
        opset: The opset of ONNX in which texts under `composite:` are written.
        facts: What strategies know of its operators: groups, and what flows on their ports; None if it says nothing.
    """

    domain: str
    version: int
    entries: dict[str, Entry] = field(default_factory=dict)
    gradients: dict[str, Entry] = field(default_factory=dict)
    functions: str = ""
    opset: int = 18
    facts: OperatorFacts | None = None
