"""Reader of the YAML files of hb_mapper and hb_compile."""

from __future__ import annotations

from pathlib import Path

from dovetail.files import seen
from dovetail.plugin import DovetailError

from dovetail_bpu_int8.vendor.asked import VendorSettings
from dovetail_bpu_int8.vendor.calibration import read_calibration_type
from dovetail_bpu_int8.vendor.calibration_data import read_calibration_data
from dovetail_bpu_int8.vendor.inputs import read_inputs
from dovetail_bpu_int8.vendor.keys import KEYS, check_keys
from dovetail_bpu_int8.vendor.marches import march_of
from dovetail_bpu_int8.vendor.node_info import read_node_info, read_run_on
from dovetail_bpu_int8.vendor.optimization import read_optimization
from dovetail_bpu_int8.vendor.quant_config import read_quant_config, read_quant_config_file
from dovetail_bpu_int8.vendor.refusals import Preprocessing
from dovetail_bpu_int8.vendor.tree import Entries, FileError, Node, Scalar, as_plain, read_yaml

_COMPILES = "it takes effect where the vendor's tool compiles the files that are written"


def read_hb_yaml(path: Path) -> VendorSettings:
    """Read a file.

    Settings of single nodes override global ones, in this order: `optimization`, then `quant_config`, then `run_on_cpu`
    and `run_on_bpu`, then `node_info`.

    Raises:
        DovetailError: The file cannot be read, or requests something unsupported; names the line.
    """
    tree = read_yaml(path)
    for key, _ in tree:
        if key.raw not in KEYS:
            check_keys(Entries(tree.file, tree.line, tuple(pair for pair in tree.pairs if pair[0] is key)), _ANY)
    model = _group(tree, "model_parameters")
    found = model.get("march")
    if found is None or _empty(found):
        raise FileError(model, "model_parameters: march is missing", "write march: bayes-e, or that of your BPU")
    asked = VendorSettings(march_of(found), folder=path.parent)
    check_keys(tree, asked.march)
    asked.document = as_plain(tree)
    _read_model(model, asked)
    calibration = _group(tree, "calibration_parameters")
    read_calibration_type(calibration, asked)
    _read_formats(model, calibration, asked)
    asked.inputs = read_inputs(_group(tree, "input_parameters"))
    asked.preprocessing = Preprocessing.of(_group(tree, "input_parameters"))
    asked.data = read_calibration_data(tree, calibration, asked)
    _note_what_is_passed_on(tree, asked)
    return asked


_ANY = march_of(Scalar("", 0, "bayes"))


def _read_model(model: Entries, asked: VendorSettings) -> None:
    caffe = next((node for key in ("caffe_model", "prototxt") if (node := model.get(key)) and not _empty(node)), None)
    prefix = model.get("output_model_file_prefix")
    if prefix is not None and not _empty(prefix) and {"/", "\\", "\0"} & set(prefix.text("output_model_file_prefix")):
        problem = "output_model_file_prefix: a prefix of file names holds no folder"
        raise FileError(prefix, problem, "name the folder as working_dir")
    onnx = model.get("onnx_model")
    if onnx is not None and not _empty(onnx):
        asked.model = Scalar(onnx.file, onnx.line, onnx.text("onnx_model"))
    elif caffe is not None:
        raise FileError(caffe, "Caffe models are not read here", "export the model as ONNX, and name it as onnx_model")


def _read_formats(model: Entries, calibration: Entries, asked: VendorSettings) -> None:
    optimization, quant_config = calibration.get("optimization"), calibration.get("quant_config")
    if optimization is not None:
        read_optimization(optimization, asked)
    if isinstance(quant_config, Entries):
        read_quant_config(quant_config, asked)
    elif quant_config is not None and not _empty(quant_config):
        _read_named_file(quant_config, asked)
    for key, where in (("run_on_cpu", "CPU"), ("run_on_bpu", "BPU")):
        for group in (model, calibration):
            if (names := group.get(key)) is not None:
                read_run_on(names, key, where, asked)
        if (misplaced := model.get(key)) is not None and not _empty(misplaced):
            why = f"{misplaced.where}, {key}: the manuals have it under calibration_parameters"
            asked.note(why, "it is read all the same; move it there for the vendor's tool")
    for key in ("set_node_data_type", "node_info"):
        node = model.get(key)
        if node is None or _empty(node):
            continue
        read_node_info(node, key, asked)


def _read_named_file(node: Node, asked: VendorSettings) -> None:
    path = Path(node.text("quant_config"))
    path = path if path.is_absolute() or seen(path).exists() else (asked.folder or Path()) / path
    try:
        other = read_quant_config_file(path, asked.march)
    except DovetailError as error:
        raise FileError(node, f"quant_config: {error.message}", error.hint) from None
    asked.join(other)


def _note_what_is_passed_on(tree: Entries, asked: VendorSettings) -> None:
    """Add a note about keys that concern only the vendor's compiler, and one about each key without effect here."""
    passed: list[str] = []
    for section, content in tree:
        for key, value in content if isinstance(content, Entries) else ():
            effect = KEYS[section.raw][key.raw].effect
            if effect == "used" or _empty(value):
                continue
            if effect == "passed":
                passed.append(key.raw)
            else:
                asked.note(f"{key.where}, {key.raw}: {effect}", _COMPILES)
    if passed:
        why = f"{tree.file}: {', '.join(passed)} mean something to the vendor's compiler alone"
        asked.note(why, "they stand in the config.yaml that is written")


def _group(tree: Entries, name: str) -> Entries:
    found = tree.get(name)
    if isinstance(found, Entries):
        return found
    if name == "model_parameters":
        problem = "model_parameters is missing, with the march and the model"
        raise FileError(found or tree, problem, "give a file that hb_mapper or hb_compile reads")
    return Entries(tree.file, tree.line, ())


def _empty(node: Node) -> bool:
    if isinstance(node, Scalar):
        return node.is_null or not node.raw.strip()
    return isinstance(node, Entries) and not node.pairs
