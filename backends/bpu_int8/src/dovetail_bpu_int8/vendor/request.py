"""Translation of the vendor's files to a compile request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dovetail.errors import UsageError
from dovetail.files import seen
from dovetail.passes import OBSERVER, BackendChoice, PinOrigin
from dovetail.plugin import DovetailError, input_data

from dovetail_bpu_int8.bpu_requests import OPTION, REQUESTS, format_request, recorded_entry
from dovetail_bpu_int8.vendor.asked import SUBGRAPH, Named, VendorSettings
from dovetail_bpu_int8.vendor.hb_yaml import read_hb_yaml
from dovetail_bpu_int8.vendor.marches import MARCHES, March
from dovetail_bpu_int8.vendor.model_names import ModelNames, take_other_names
from dovetail_bpu_int8.vendor.quant_config import read_quant_config_file
from dovetail_bpu_int8.vendor.refusals import check_outputs
from dovetail_bpu_int8.vendor.tree import FileError

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Request
    from dovetail.planning import NodeRequest

    from dovetail_bpu_int8.vendor.inputs import InputSettings


__all__ = ["BACKEND", "changed", "completed_backends", "model_path"]

BACKEND = "bpu-int8"
_MARCH, _FIRST = "march", "bernoulli2"
_FIX_SHAPES = "fix-shapes"  # option of dovetail-transforms, which records shapes by input
_OPERATOR = "type:"
_REFINE = "refine"  # option of dovetail-quantize, and its key in the record


def model_path(asked: VendorSettings) -> Path:
    """Find the model that a YAML file names, relative to the file or to the current folder.

    Raises:
        DovetailError: The file names no model, or the model does not exist.
    """
    if asked.model is None:
        file = asked.document and "model_parameters: onnx_model is missing"
        raise DovetailError(f"no model is named: {file}", "name it before --hb-yaml, or in the file as onnx_model")
    written = Path(asked.model.raw)
    candidates = [written] if written.is_absolute() else [(asked.folder or Path()) / written, written]
    for path in candidates:
        if seen(path).is_file():
            return path
    looked = " and ".join(str(path) for path in dict.fromkeys(candidates))
    raise FileError(
        asked.model, f"onnx_model: there is no file {looked}", "name the model: dovetail compile MODEL --hb-yaml ..."
    )


def completed_backends(backends: Sequence[str], asked: VendorSettings) -> list[str]:
    """Prepend the BPU to the backends of a command line, unless it is among them."""
    if any(BackendChoice.parse(text).name == BACKEND for text in backends):
        return list(backends)
    return [f"{BACKEND}:{_MARCH}={asked.march.own}", *backends]


def changed(
    request: Request,
    model: Model,
    hb_yaml: str | Path | None = None,
    quant_config: str | Path | None = None,
    int16: str | Sequence[str] = (),
) -> Request:
    """Apply the settings of files and selectors to a request.

    Raises:
        DovetailError: A file cannot be read, requests something unsupported, or names something that the model lacks.
    """
    asked = read_hb_yaml(Path(hb_yaml)) if hb_yaml else VendorSettings(_march_of(request))
    if quant_config:
        other = read_quant_config_file(Path(quant_config), asked.march)
        asked.document |= {"quant_config": other.document["quant_config"]}
        asked.join(other)
    names = ModelNames(model)
    take_other_names(asked, names)
    pins = _pins(asked, names)
    _check(asked, names)
    requests = [*_spread(asked, names), *_int16([int16] if isinstance(int16, str) else int16, asked.march, model)]
    choices = _choices(request.backends, asked, given=bool(hb_yaml))
    shapes = asked.inputs.of(model) if asked.inputs is not None else {}
    if asked.preprocessing is not None:
        asked.preprocessing.check(shapes)
        check_outputs(model, asked.model or cast("InputSettings", asked.inputs).place)
    data = request.data
    if data is None and asked.data is not None:
        data = input_data(asked.data.of(model, shapes)).given
    record = {
        REQUESTS: [recorded_entry(one) for one in requests],
        "march": asked.march.name,
        "document": asked.document,
        "folder": str(asked.folder) if asked.folder is not None and asked.document else "",
        "no_data": asked.no_data if data is None else "",
        "notes": [list(note) for note in asked.notes if data is None or note.why != asked.no_data],
    }
    options = {**request.options, OPTION: {key: value for key, value in record.items() if value}}
    if asked.refine and _REFINE not in options:
        options[_REFINE] = {"steps": list(asked.refine)}
    if asked.inputs is not None and (fixed := asked.inputs.fixed(model)):
        options[_FIX_SHAPES] = fixed
    own = [text for text in pins if text not in request.pins]
    # The user's own pins come last, because later ones win.
    return replace(
        request, backends=choices, pins=(*own, *request.pins), pin_origins={**pins, **request.pin_origins}, data=data,
        options=options,
    )  # fmt: skip


def _march_of(request: Request) -> March:
    choice = request.choice(BACKEND)
    if choice is None and request.plan is None:
        raise UsageError(
            f"a quant_config and int16 are for {BACKEND}, which was not chosen",
            f"add --backend {BACKEND}:march=nash, or another march",
        )
    name = (choice.options.get(_MARCH) if choice is not None else None) or _FIRST
    return MARCHES.get(name, MARCHES[_FIRST])


def _pins(asked: VendorSettings, names: ModelNames) -> dict[str, PinOrigin]:
    """Return the pins of nodes that must be on the BPU, each with its origin.

    The BPU may decline them: like the vendor's tools, this results in a warning, not in an error.
    """
    placed: dict[int, tuple[Any, Named, str]] = {}
    for named, where in asked.placed:
        for node in names.nodes(named):
            placed[id(node)] = (node, named, where)
    return {
        f"{names.selector_of(node)}={BACKEND}": PinOrigin(
            f"{named.place.where}, {named.key}", may_be_declined=True, if_declined=asked.march.if_declined(named.key)
        )
        for node, named, where in placed.values()
        if where == "BPU"
    }


def _check(asked: VendorSettings, names: ModelNames) -> None:
    """Check that all named nodes and operators exist; an operator that the model lacks is only noted."""
    for named in asked.nodes:
        names.nodes(named)
    for named in asked.operators:
        if not names.check_operator(named):
            why = f"{named.place.where}, {named.key}: the model has no {named.selector}"
            asked.note(why, "nothing; or check that this is the model that the file is for")


def _spread(asked: VendorSettings, names: ModelNames) -> list[NodeRequest]:
    """Expand requests for subgraphs to their nodes, and drop those for operators that the model lacks."""
    nodes = {f"{SUBGRAPH}{one.name.raw}": names.between(one) for one in asked.subgraphs}
    found: list[NodeRequest] = []
    for one in asked.requests:
        if one.selector in nodes:
            found += [replace(one, selector=names.selector_of(node)) for node in nodes[one.selector]]
        elif not one.selector.startswith(_OPERATOR) or one.selector.removeprefix(_OPERATOR) in names.operators:
            found.append(one)
    return found


def _int16(selectors: Iterable[str], march: March, model: Model) -> list[NodeRequest]:
    from dovetail.planning import select

    found = []
    for selector in selectors:
        if "int16" not in march.formats:
            raise UsageError(
                f"--int16 {selector}: march '{march.name}' computes in int8 alone",
                f"choose another one: --backend {BACKEND}:march=bayes",
            )
        select(model, selector)
        found.append(format_request(selector, f"--int16 {selector}", "int16"))
    return found


def _choices(backends: Sequence[BackendChoice], asked: VendorSettings, given: bool) -> tuple[BackendChoice, ...]:
    """Add the options of a YAML file to the backends; options given by the user win."""
    wanted: Mapping[str, str] = {_MARCH: asked.march.own, **asked.backend} if given else asked.backend
    if all(choice.name != BACKEND for choice in backends):
        return (BackendChoice(BACKEND, dict(wanted)), *backends) if given else tuple(backends)
    return tuple(_merged(choice, wanted, asked) if choice.name == BACKEND else choice for choice in backends)


def _merged(choice: BackendChoice, wanted: Mapping[str, str], asked: VendorSettings) -> BackendChoice:
    own = choice.options
    if OBSERVER in own:
        wanted = {key: value for key, value in wanted.items() if key.partition(".")[0] != OBSERVER}
    if _MARCH in own and own[_MARCH] != wanted.get(_MARCH, own[_MARCH]):
        why = f"the file is for march {asked.march.name}, and --backend {choice} was chosen, which wins"
        asked.note(why, "leave march out of --backend to take that of the file")
    return BackendChoice(choice.name, {**wanted, **own})
