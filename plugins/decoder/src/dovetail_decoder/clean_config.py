"""Configurations of a folder without what an engine could take as a library, a provider, a path or a program.

Folders come from anywhere, and generators do what their configurations say: `custom_ops_library` of a
`genai_config.json` is loaded as soon as the model is. So options of sessions, runs and providers are those that are
listed here, and entries of other documents that name files, code or extensions are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dovetail.text import printable

_SESSION = frozenset(
    {
        *("log_id", "log_severity_level", "log_verbosity_level", "intra_op_num_threads", "inter_op_num_threads"),
        *("enable_cpu_mem_arena", "enable_mem_pattern", "graph_optimization_level", "provider_options"),
        *("session.disable_cpu_ep_fallback", "session.disable_prepacking", "session.set_denormal_as_zero"),
        *("session.intra_op.allow_spinning", "session.inter_op.allow_spinning", "session.force_spinning_stop"),
        *("session.use_env_allocators", "session.use_device_allocator_for_initializers"),
        *("session.disable_quant_qdq", "session.enable_quant_qdq_cleanup", "session.qdqisint8allowed"),
        *("session.qdq_matmulnbits_accuracy_level", "session.qdq_matmulnbits_block_size"),
        *("session.disable_aot_function_inlining", "session.dynamic_block_base"),
        *("optimization.enable_gelu_approximation", "optimization.enable_cast_chain_elimination"),
        *("optimization.disable_specified_optimizers", "mlas.enable_gemm_fastmath_arm64_bfloat16"),
    }
)
_RUN = frozenset(
    {"memory.enable_memory_arena_shrinkage", "disable_synchronize_execution_providers", "gpu_graph_id"}
)  # fmt: skip
OPTIONS: Mapping[str, frozenset[str]] = {"session_options": _SESSION, "run_options": _RUN}
"""The known options of sessions and runs, by the key that holds them."""
_PROVIDERS: Mapping[str, frozenset[str]] = {
    "cuda": frozenset(
        {
            *("device_id", "gpu_mem_limit", "arena_extend_strategy", "enable_cuda_graph", "use_tf32", "prefer_nhwc"),
            *("cudnn_conv_algo_search", "cudnn_conv_use_max_workspace", "cudnn_conv1d_pad_to_nc1d", "sdpa_kernel"),
            *("do_copy_in_default_stream", "use_ep_level_unified_stream", "enable_skip_layer_norm_strict_mode"),
            *("tunable_op_enable", "tunable_op_tuning_enable", "tunable_op_max_tuning_duration_ms", "fuse_conv_bias"),
        }
    ),
    "webgpu": frozenset(
        {
            *("deviceid", "preferredlayout", "enablegraphcapture", "validationmode", "preservedevice"),
            *("storagebuffercachemode", "uniformbuffercachemode", "queryresolvebuffercachemode"),
            *("defaultbuffercachemode", "enablepixcapture", "forcecpunodenames"),
        }
    ),
    "dml": frozenset(
        {"device_id", "performance_preference", "device_filter", "disable_metacommands", "enable_graph_capture"}
    ),
    "nvtensorrtrtx": frozenset(
        {
            *("device_id", "enable_cuda_graph", "nv_cuda_graph_enable", "nv_max_workspace_size"),
            *("nv_max_shared_mem_size", "nv_multi_profile_enable", "nv_detailed_build_log"),
            *("nv_profile_min_shapes", "nv_profile_max_shapes", "nv_profile_opt_shapes"),
        }
    ),
}
"""Options of the providers that a result may name, in lower case: numbers, switches and words. Not among them are
libraries and paths of caches, of profiles and of programs, nor addresses of functions, allocators and streams."""

_WORD = re.compile(r"[\w.,:;+=-]{0,256}")
_FILTER = "device_filtering_options"
_FILTERED = frozenset({"hardware_device_type", "hardware_device_id", "hardware_vendor_id"})

_CODE_KEYS = frozenset(
    {"auto_map", "custom_pipelines", "custom_generate", "trust_remote_code", "code_revision", "custom_code"}
)
_LOADED = re.compile(r"(?:^|[_.])(?:librar(?:y|ies)|plugins?|extensions?|executables?|cache_dir)(?:_paths?)?$")
_KERNELS = re.compile(r"^_?(?:\w+_)?attn_implementation(?:_\w+)?$|^_?experts_implementation$")
_NAMES_A_FILE = re.compile(r"(?:^|[_.])(?:files?|filenames?|paths?|dirs?|folders?|director(?:y|ies)|url|uri)$")
_CODE = re.compile(r"\S*\.(?:so(?:\.[\d.]+)?|dll|dylib|pyd|py|pyc|exe|sh|bat|ps1|jar)")
_TOKEN = "content"
_LEADS_OUT = re.compile(r"[\\/~]|[A-Za-z]:[\\/]|\w+://|(?:.*[\\/])?\.\.(?:[\\/]|$)")


class Cleaned(NamedTuple):
    """A document, and the entries that were left out of it, each with the reason."""

    document: Any
    left_out: tuple[str, ...]

    def note(self, name: object) -> str:
        """Return the note for the user on what was left out of a file; empty if nothing was."""
        if not self.left_out:
            return ""
        more = f" and {len(self.left_out) - _LISTED} more" if len(self.left_out) > _LISTED else ""
        what = f"{', '.join(self.left_out[:_LISTED])}{more}"
        return f"{name}: left out {what}, because engines get no library, provider, path or code from a folder"


_LISTED = 6


def cleaned(document: Any) -> Cleaned:
    """Return a configuration without options that are not known to be harmless, and without names of code."""
    left_out: list[str] = []
    return Cleaned(_value(document, "", left_out), tuple(left_out))


def _mapping(given: Mapping[str, Any], place: str, left_out: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in given.items():
        where, name = f"{place}.{key}" if place else key, key.lower()
        if name in OPTIONS:
            made[key] = _options(value, where, OPTIONS[name], left_out)
        elif name == "provider_options":
            made[key] = _providers(value, where, left_out)
        elif why := _problem(name, value):
            left_out.append(f"'{printable(where)}' ({why})")
        else:
            made[key] = _value(value, where, left_out)
    return made


def _value(value: Any, where: str, left_out: list[str]) -> Any:
    if isinstance(value, dict):
        return _mapping(value, where, left_out)
    if isinstance(value, list):
        return [_value(one, f"{where}.{number}", left_out) for number, one in enumerate(value)]
    return value


def _problem(name: str, value: Any) -> str:
    """Return why an entry is left out; empty if it stays."""
    if value is None or value is False or isinstance(value, (int, float)) and value is not True:
        return ""  # such as the number of a token of this name
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    if name in _CODE_KEYS:
        return "names code"
    if _LOADED.search(name):
        return "names what an engine would load"
    if name != _TOKEN and any(_CODE.fullmatch(text.lower()) for text in texts):
        return "names a library or a program"
    if _KERNELS.search(name) and any("/" in text for text in texts):
        return "names code on a server"
    if _NAMES_A_FILE.search(name) and any(_LEADS_OUT.match(text) for text in texts):
        return "leads out of the folder"
    return ""


def _options(given: Any, where: str, known: frozenset[str], left_out: list[str]) -> dict[str, Any]:
    """Return the options that are known, with values that are numbers, switches or words."""
    made: dict[str, Any] = {}
    if not isinstance(given, dict):
        left_out.append(f"'{printable(where)}' (not a mapping)")
        return made
    for key, value in given.items():
        place = f"{where}.{key}"
        if key.lower() not in known:
            left_out.append(f"'{printable(place)}' (not among the options that a folder may set)")
        elif key.lower() == "provider_options":
            made[key] = _providers(value, place, left_out)
        elif isinstance(value, (bool, int, float)) or isinstance(value, str) and _WORD.fullmatch(value):
            made[key] = value
        else:
            left_out.append(f"'{printable(place)}' (neither a number nor a word)")
    return made


def _providers(given: Any, where: str, left_out: list[str]) -> list[dict[str, Any]]:
    """Return the providers that a result may name, with their known options."""
    made: list[dict[str, Any]] = []
    if not isinstance(given, list):
        left_out.append(f"'{printable(where)}' (not a list)")
        return made
    for entry in given:
        if not isinstance(entry, dict):
            left_out.append(f"an entry of '{printable(where)}' (not a mapping)")
            continue
        for name, options in entry.items():
            place = f"{where}.{name}"
            known = _PROVIDERS.get(name.lower().removesuffix("executionprovider"))
            if known is None:
                left_out.append(f"'{printable(place)}' (not a provider that a result names)")
                continue
            options = dict(options) if isinstance(options, dict) else {}
            devices = options.pop(_FILTER, None)
            kept = _options(options, place, known, left_out)
            if devices is not None:
                kept[_FILTER] = _options(devices, f"{place}.{_FILTER}", _FILTERED, left_out)
            made.append({name: kept})
    return made
