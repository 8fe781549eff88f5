"""The parsed form of operator entries: a signature, with its inference, kernels and decomposition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail_schemas import OperatorFacts


@dataclass(frozen=True, slots=True)
class OperatorArgument:
    """An input or an attribute.

    Attributes:
        name: Its name.
        type: `Tensor` or `Tensor[]` for an input; else the type of an attribute: `int`, `float[]`, `IntArray`, ...
        has_default: Whether it may be omitted.
        default: The default value; a DataType, DataLayout or Place is a string.
    """

    name: str
    type: str
    has_default: bool = False
    default: object = None

    @property
    def is_tensor(self) -> bool:
        """Whether this is an input."""
        return self.type.startswith("Tensor")

    @property
    def is_list(self) -> bool:
        """Whether the type is a list."""
        return self.type.endswith("[]")


@dataclass(frozen=True, slots=True)
class OperatorOutput:
    """An output.

    Attributes:
        name: Its name.
        type: `Tensor` or `Tensor[]`.
        size: Length of a list, as an expression (`x.size()`); empty if not given.
    """

    name: str
    type: str = "Tensor"
    size: str = ""

    @property
    def is_list(self) -> bool:
        """Whether the type is a list."""
        return self.type.endswith("[]")


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function call.

    Attributes:
        function: Name of the function.
        arguments: Names of the arguments passed.
    """

    function: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyCandidates:
    """Arguments that determine a part of a kernel's key, by priority or by type promotion.

    Attributes:
        names: Arguments, or literals such as `DataType::FLOAT32`; `complex(x)` is the complex type matching that of x.
        ordered: Whether the first known one wins (`x > y`); otherwise all are promoted (`x, y`).
    """

    names: tuple[str, ...] = ()
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class InferMeta:
    """The function that infers shape, type and layout of the outputs.

    Attributes:
        call: The function, with its arguments.
        rules: The other keys, used only by distributed execution, as strings.
    """

    call: FunctionCall
    rules: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorKernel:
    """The execution of an operator by kernels.

    Attributes:
        functions: Kernel names, each with the tensor kinds of its inputs and outputs (`dense -> dense`); empty for any.
        parameters: Names of the arguments passed to kernels.
        data_type: The candidates for the element type in the key.
        backend: The candidates for the device.
        layout: The candidates for the layout.
        force_backend: The attribute that names a device.
    """

    functions: tuple[tuple[str, str], ...]
    parameters: tuple[str, ...]
    data_type: KeyCandidates = KeyCandidates()
    backend: KeyCandidates = KeyCandidates()
    layout: KeyCandidates = KeyCandidates()
    force_backend: str = ""


@dataclass(frozen=True, slots=True)
class OperatorEntry:
    """One operator, or the gradient of one.

    Attributes:
        name: Its name.
        args: Inputs, then attributes.
        outputs: Results.
        where: File and line.
        infer_meta: The inference of its outputs; None for composites and operators that `invoke` replaces.
        kernel: Its kernels; None if it has none of its own.
        composite: The function that builds it from other operators, or None.
        body: The same as a text of ONNX nodes.
        invoke: The operator that is called instead.
        forward: For a gradient, the signature of its operator as written there: name, args and outputs.
        backward: Name of its gradient.
        inplace: Pairs of input and output that may share memory.
        view: Pairs of input and output that share memory unless it has other users.
        optional: Inputs and outputs that may be absent.
        intermediate: Outputs used only by the gradient.
        no_need_buffer: Inputs of which only shape and type are used.
        skip_transform: Inputs that are not converted to the kernel's type.
        support_trans_dtype: Inputs that may be cast when a kernel is chosen.
        traits: Traits of the operator.
        interfaces: Interfaces of the operator.
    """

    name: str
    args: tuple[OperatorArgument, ...]
    outputs: tuple[OperatorOutput, ...]
    where: str
    infer_meta: InferMeta | None = None
    kernel: OperatorKernel | None = None
    composite: FunctionCall | None = None
    body: str = ""
    invoke: FunctionCall | None = None
    forward: OperatorEntry | None = None
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
    def inputs(self) -> tuple[OperatorArgument, ...]:
        """The tensor arguments."""
        return tuple(arg for arg in self.args if arg.is_tensor)

    @property
    def attributes(self) -> tuple[OperatorArgument, ...]:
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
        functions: The module with its functions, if it names one.
        functions_at: File and line of that name.
        opset: The ONNX opset of texts under `composite:`.
        facts: Facts about its operators: groups, and kinds of values on ports; None if it states none.
    """

    domain: str
    version: int
    entries: dict[str, OperatorEntry] = field(default_factory=dict)
    gradients: dict[str, OperatorEntry] = field(default_factory=dict)
    functions: str = ""
    functions_at: str = ""
    opset: int = 18
    facts: OperatorFacts | None = None
