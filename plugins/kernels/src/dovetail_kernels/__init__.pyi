# What plugins may use of `dovetail_kernels`, each name with its module.

from dovetail.ir import Model
from dovetail.plugin import Registry
from dovetail_kernels.kernel import DeviceMemory as DeviceMemory, Kernel as Kernel
from dovetail_kernels.operator_files.inference import Meta as Meta

dovetail_api: int
dovetail_kinds: dict[str, str]

def register(registry: Registry) -> None: ...
def before_opening(registry: Registry) -> None: ...
def opened(model: Model, registry: Registry) -> None: ...
