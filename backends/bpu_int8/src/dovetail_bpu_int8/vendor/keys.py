"""Keys of the YAML files of hb_mapper and hb_compile: allowed values, and their effect here."""

from __future__ import annotations

import re
from typing import NamedTuple, cast

from dovetail.text import did_you_mean

from dovetail_bpu_int8.vendor.marches import HB_COMPILE, HB_MAPPER, March
from dovetail_bpu_int8.vendor.tree import Entries, FileError, Items, Node, Scalar, as_plain, type_name


class Key(NamedTuple):
    """A key.

    Attributes:
        takes: Allowed value: `text`, `flag`, `whole`, `number`, `mapping`, `text or mapping`, `text or list`.
        effect: Its effect here: `used`; `passed`, for the vendor's compiler only; or why it has none.
        tool: The only tool that supports it; empty for both.
    """

    takes: str
    effect: str = "passed"
    tool: str = ""


_CUT = "nothing is cut off the model here; the tool does that with the files that are written"

# Source: the manuals of hb_mapper makertbin (X3, X5) and hb_compile (J6). They list run_on_cpu and run_on_bpu under
# calibration_parameters; next to node_info these are accepted with a note.
KEYS: dict[str, dict[str, Key]] = {
    "model_parameters": {
        "onnx_model": Key("text", "used"),
        "caffe_model": Key("text", "used"),
        "prototxt": Key("text", "used"),
        "march": Key("text", "used"),
        "output_model_file_prefix": Key("text"),
        "working_dir": Key("text"),
        "layer_out_dump": Key("flag"),
        "log_level": Key("text"),
        "output_nodes": Key("text", _CUT),
        "remove_node_type": Key("text", _CUT),
        "remove_node_name": Key("text", _CUT),
        "set_node_data_type": Key("text or mapping", "used"),
        "debug_mode": Key("text"),
        "node_info": Key("text or mapping", "used"),
        "run_on_cpu": Key("text or list", "used"),
        "run_on_bpu": Key("text or list", "used"),
        "enable_vpu": Key("flag", tool=HB_COMPILE),
        "enable_spu": Key("flag", tool=HB_COMPILE),
    },
    "input_parameters": {
        "input_name": Key("text", "used"),
        "input_type_train": Key("text"),
        "input_type_rt": Key("text"),
        "input_layout_train": Key("text"),
        "input_layout_rt": Key("text"),
        "input_space_and_range": Key("text"),
        "input_shape": Key("text", "used"),
        "input_batch": Key("text"),
        "separate_batch": Key("flag", tool=HB_COMPILE),
        "separate_name": Key("text", tool=HB_COMPILE),
        "norm_type": Key("text", "used"),
        "mean_value": Key("text", "used"),
        "scale_value": Key("text", "used"),
        "std_value": Key("text", "used", HB_COMPILE),
    },
    "calibration_parameters": {
        "cal_data_dir": Key("text", "used"),
        "cal_data_type": Key("text", "used"),
        "preprocess_on": Key("flag", "used"),
        "calibration_type": Key("text", "used"),
        "max_percentile": Key("number", "used"),
        "per_channel": Key("flag", "used"),
        "run_on_cpu": Key("text or list", "used"),
        "run_on_bpu": Key("text or list", "used"),
        "optimization": Key("text or list", "used"),
        "quant_config": Key("text or mapping", "used", HB_COMPILE),
    },
    "compiler_parameters": {
        "compile_mode": Key("text"),
        "balance_factor": Key("whole"),
        "debug": Key("flag"),
        "core_num": Key("whole"),
        "optimize_level": Key("text"),
        "input_source": Key("text or mapping"),
        "max_time_per_fc": Key("whole"),
        "jobs": Key("whole"),
        "advice": Key("number"),
        "cache_mode": Key("text", tool=HB_COMPILE),
        "cache_path": Key("text", tool=HB_COMPILE),
        "max_l2m_size": Key("whole", tool=HB_COMPILE),
        "ability_entry": Key("text", tool=HB_COMPILE),
        "extra_params": Key("mapping", tool=HB_COMPILE),
        "hbdk3_compatible_mode": Key("flag", tool=HB_COMPILE),
    },
    "custom_op": {
        "custom_op_method": Key("text", "operators of your own are not known here: they stay on the host"),
        "op_register_files": Key("text", "operators of your own are not known here: they stay on the host"),
        "custom_op_dir": Key("text", "operators of your own are not known here: they stay on the host"),
    },
}

_IMAGES = ("rgb", "bgr", "gray", "yuv444", "yuv444_128", "featuremap")
_WORDS = {
    "compile_mode": ("latency", "bandwidth", "balance"),
    "input_type_rt": (*_IMAGES, "nv12"),
    "input_type_train": _IMAGES,
    "input_layout_train": ("NCHW", "NHWC"),
    "input_layout_rt": ("NCHW", "NHWC"),
}
"""Allowed words of keys from the manuals; semicolons separate several inputs."""

_TYPES = {"text": (str, int, float), "flag": (bool,), "whole": (int,), "number": (int, float)}
_QUANT_CONFIG = ("model_config", "op_config", "node_config", "subgraph_config")


def check_keys(tree: Entries, march: March) -> None:
    """Check that a file has known keys, each with a value of its type, all of one tool.

    Raises:
        FileError: A key or value is invalid; names the line, and the likely intention.
    """
    for section, content in tree:
        if section.raw not in KEYS:
            raise _unknown_section(section)
        if isinstance(content, Scalar) and content.is_null:
            continue
        known = KEYS[section.raw]
        if not isinstance(content, Entries):
            raise FileError(
                content, f"{section.raw}: {type_name(content)} stands where 'key: value' pairs are expected"
            )
        for key, value in content:
            if key.raw not in known:
                raise _unknown_key(key, section.raw)
            _check(key.raw, known[key.raw], key, value, march)
            if key.raw in _WORDS and isinstance(value, Scalar) and not value.is_null:
                _check_words(key.raw, value)
    compiler = tree.get("compiler_parameters")
    if isinstance(compiler, Entries):
        _check_compiler(compiler, march)


def _check(name: str, key: Key, place: Scalar, value: Node, march: March) -> None:
    if key.tool and key.tool != march.tool:
        other = HB_MAPPER if key.tool == HB_COMPILE else HB_COMPILE
        raise FileError(
            place,
            f"'{name}' is a key of {key.tool}, and march '{march.name}' is compiled by {other}",
            "remove it, or name the march that the file is written for",
        )
    if isinstance(value, Scalar) and value.is_null:
        return
    if isinstance(value, Scalar) and value.quoted and not value.raw.strip():
        return
    kinds = key.takes.split(" or ")
    if isinstance(value, Entries):
        fits = "mapping" in kinds
    elif isinstance(value, Scalar):
        plain = as_plain(value)
        fits = any(isinstance(plain, _TYPES.get(kind, ())) for kind in kinds)
        fits = fits or (value.quoted and _unquoted_fits(value, kinds))
        fits = fits and not (isinstance(plain, bool) and "flag" not in kinds)
    else:
        items = cast("Items", value).items
        fits = "list" in kinds or "text" in kinds and all(isinstance(item, Scalar) for item in items)
    if not fits:
        raise FileError(value, f"{name}: {type_name(value)} stands where a {key.takes} is expected")


def _check_words(name: str, value: Scalar) -> None:
    known = _WORDS[name]
    for word in filter(None, (part.strip() for part in value.raw.split(";"))):
        if word.lower() not in map(str.lower, known):
            raise FileError(
                value, f"{name}: '{word}' is not known{did_you_mean(word, known)}", f"it is {', '.join(known)}"
            )


def _unquoted_fits(value: Scalar, kinds: list[str]) -> bool:
    """Check whether an unquoted value has an allowed type, as the vendor's tools accept quoted numbers."""
    plain = as_plain(Scalar(value.file, value.line, value.raw.strip()))
    return any(isinstance(plain, _TYPES.get(kind, ())) for kind in kinds)


def _check_compiler(compiler: Entries, march: March) -> None:
    level, cores = compiler.get("optimize_level"), compiler.get("core_num")
    if level is not None and level.text("optimize_level") not in march.levels:
        shown = level.text("optimize_level")
        raise FileError(
            level,
            f"optimize_level '{shown}' is none of {march.tool}, which compiles for march '{march.name}'",
            f"it has {', '.join(march.levels)}",
        )
    if isinstance(cores, Scalar) and not cores.is_null:
        number = int(cores.raw) if re.fullmatch("[0-9]{1,18}", cores.raw.strip()) else 0
        if not 1 <= number <= march.cores:
            most = "one core" if march.cores == 1 else f"1 to {march.cores} cores"
            raise FileError(cores, f"core_num {cores.raw}: a model on march '{march.name}' uses {most}")


def _unknown_section(section: Scalar) -> FileError:
    if section.raw in _QUANT_CONFIG:
        what = f"'{section.raw}' belongs to a quant_config of hb_compile, and this is read as its YAML file"
        return FileError(section, what, f"give it as --quant-config {section.file}")
    for name, keys in KEYS.items():
        if section.raw in keys:
            return FileError(section, f"'{section.raw}' belongs under {name}", f"indent it under {name}:")
    near = did_you_mean(section.raw, KEYS)
    return FileError(section, f"unknown group '{section.raw}'{near}", f"the groups are {', '.join(KEYS)}")


def _unknown_key(key: Scalar, section: str) -> FileError:
    for name, keys in KEYS.items():
        if key.raw in keys:
            return FileError(key, f"'{key.raw}' belongs under {name}, not under {section}", f"move it to {name}:")
    near = did_you_mean(key.raw, KEYS[section])
    return FileError(key, f"unknown key '{key.raw}' in {section}{near}", f"its keys are {', '.join(KEYS[section])}")
