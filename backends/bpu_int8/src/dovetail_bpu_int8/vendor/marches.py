"""The vendor's names of BPUs, and the capabilities of their tools."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.text import did_you_mean

from dovetail_bpu_int8.vendor.tree import FileError, Node

HB_MAPPER, HB_COMPILE = "hb_mapper", "hb_compile"


@dataclass(frozen=True)
class March:
    """A BPU.

    Attributes:
        name: The vendor's name for it.
        own: The value of the option `march` of the backend.
        tool: The tool that compiles for it.
        formats: Element types that can be requested for operators.
        cores: Number of cores that one model may use.
    """

    name: str
    own: str
    tool: str
    formats: tuple[str, ...]
    cores: int = 1

    @property
    def names_nodes(self) -> bool:
        """Whether its tool supports `node_info`; that of X3 has only `run_on_cpu` and `run_on_bpu`."""
        return self.own != "bernoulli2"

    def if_declined(self, key: str) -> str:
        """Return a clause about the tool's behavior if the BPU does not run a node that `key` requests."""
        if key == "run_on_bpu" and not self.names_nodes:
            return f"{self.tool} leaves it on the CPU with a warning, or fails, as its FAQ for this BPU says"
        return f"{self.tool} warns, and leaves it on the CPU"

    @property
    def levels(self) -> tuple[str, ...]:
        """Optimization levels of its compiler."""
        return ("O0", "O1", "O2", "O3") if self.tool == HB_MAPPER else ("O0", "O1", "O2")


_NASH = ("int8", "int16", "float16", "float32")

# Source: the manuals of hb_mapper (X3, Ultra, X5) and hb_compile (J6, S100).
MARCHES = {
    march.name: march
    for march in (
        March("bernoulli2", "bernoulli2", HB_MAPPER, ("int8",), 2),
        March("bayes", "bayes", HB_MAPPER, ("int8", "int16"), 2),
        March("bayes-e", "bayes", HB_MAPPER, ("int8", "int16")),
        March("nash", "nash", HB_COMPILE, _NASH),
        *(
            March(f"nash-{name}", "nash", HB_COMPILE, _NASH, cores)
            for name, cores in {"b-lite": 1, "b": 1, "b-plus": 1, "e": 1, "m": 1, "h": 4, "p": 4, "starry-p": 4}.items()
        ),
    )
}


def march_of(node: Node) -> March:
    """Return the BPU that a file names.

    Raises:
        FileError: The BPU is unknown.
    """
    name = node.text("march")
    if name not in MARCHES:
        near = did_you_mean(name, MARCHES)
        raise FileError(node, f"march '{name}' is not known{near}", f"the vendor's tools know {', '.join(MARCHES)}")
    return MARCHES[name]
