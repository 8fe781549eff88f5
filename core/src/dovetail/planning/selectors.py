"""Selectors: the syntax in which users name nodes."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.formats import Format
from dovetail.planning.node_keys import identity, operator_name, walk
from dovetail.planning.placement import get_placement
from dovetail.text import near_misses

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model


# Split at the last `=` that is not inside brackets, because formats contain `=` in theirs.
_PIN = re.compile(r"(?P<selector>.+)=(?P<backend>[^=/\[\]]+)(?:/(?P<formats>.*))?")
_OPEN_BRACKET = re.compile(r"=[^=/]+/[^\]]*\[[^\]]*$")
_COMMA = re.compile(r",(?![^\[]*\])")
_PIN_FORMS = (
    "write SELECTOR=backend/FORMAT, for example 'head_1=host/float32', or one format per port: "
    "'block_3=backend/X:int16[symmetric],Y:int8[symmetric]'"
)


def select(model: Model, selector: str) -> list[ir.Node]:
    """Return the nodes that `selector` names, in graph order.

    | form | selects |
    |---|---|
    | `Conv_12`, `loop_1/body/Add_3` | the node of that name, or the producer of the value of that name |
    | `layer4.*`, `*/Add_?` | every node whose name matches the pattern |
    | `type:Conv`, `type:com.acme::FusedMlp` | every node with that operator |
    | `region:3` | every node in that region of the plan |
    | `name:type:odd` | the node whose name looks like one of the other forms |

    Raises:
        DovetailError: Nothing matches; the error suggests similar names.
    """
    form, _, rest = selector.partition(":")
    if form not in _FORMS or not rest:
        form, rest = "name", selector
    found, known = _FORMS[form](model, rest)
    if not found:
        near = near_misses(rest, known, alike=0.5)
        hint = f"did you mean {', '.join(repr(name) for name in near)}?" if near else "`dovetail plan` lists all nodes"
        raise DovetailError(f"no node matches '{selector}'", hint)
    return found


def _by_type(model: Model, wanted: str) -> tuple[list[ir.Node], list[str]]:
    nodes = [(operator_name(n.domain, n.op_type), n) for _, n in walk(model)]
    return [n for name, n in nodes if name == wanted], sorted({name for name, _ in nodes})


def _by_region(model: Model, wanted: str) -> tuple[list[ir.Node], list[str]]:
    nodes = [(p.region, n) for _, n in walk(model) if (p := get_placement(n)) is not None and p.region is not None]
    return [n for number, n in nodes if str(number) == wanted], sorted({str(number) for number, _ in nodes})


def _by_name(model: Model, wanted: str) -> tuple[list[ir.Node], list[str]]:
    exact, globbed, names = [], [], []
    pattern = any(character in wanted for character in "*?[")
    for path, node in walk(model):
        plain = node.name or ""
        full = f"{path}/{plain}" if path else plain
        names.append(full)
        if wanted in (plain, full, identity(path, node)):
            exact.append(node)
        elif pattern and (fnmatch.fnmatchcase(full, wanted) or fnmatch.fnmatchcase(plain, wanted)):
            globbed.append(node)
    return exact or globbed, names


def parse_pin(text: str) -> tuple[str, str, dict[str, Format]]:
    """Split `SELECTOR=backend/FORMAT` or `SELECTOR=backend/PORT:FORMAT,PORT:FORMAT`; formats are optional.

    Returns:
        The selector, the backend, and the required formats by port; `""` stands for all ports that are not named.

    Raises:
        DovetailError: The text has no `=`, no backend after it, an invalid format, or a port twice.
    """
    found = _PIN.fullmatch(text)
    if found is None or _OPEN_BRACKET.search(text):
        raise DovetailError(f"'{text}' is not a pin", _PIN_FORMS)
    selector, backend, written = found["selector"], found["backend"], found["formats"]
    formats: dict[str, Format] = {}
    for part in _COMMA.split(written) if written else ():
        port, _, format_ = part.rpartition(":")
        port = port.strip()
        try:
            parsed = Format.of(format_.strip())
        except DovetailError as error:
            raise DovetailError(f"pin '{text}': {error.message}", error.hint or _PIN_FORMS) from None
        if port in formats:
            what = f"port '{port}'" if port else "a format for all ports"
            raise DovetailError(f"pin '{text}' gives {what} twice", "remove one of them")
        formats[port] = parsed
    return selector, backend, formats


_FORMS = {"name": _by_name, "type": _by_type, "region": _by_region}
