"""Nets of torchvision and transformers with random weights: as PyTorch's exporter writes them, and in PyTorch itself.

Each is made where it is measured, so that hundreds of megabytes of weights need not travel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpu_parts.running import Feeds, bound, first, milliseconds, on_cuda, seconds, session_of, snr

Row = dict[str, Any]

CUDA = "CUDAExecutionProvider"


def _picture(name: str, batch: int) -> tuple[Any, dict[str, Any]]:
    import torch
    from torchvision import models

    module = getattr(models, name)(weights=None)
    pictures = torch.randn(batch, 3, 224, 224)
    with torch.no_grad():
        for parameter in module.parameters():  # some layers begin with zeros, of which nothing could be seen
            if not parameter.any():
                parameter.normal_(std=0.02)
        for _ in range(8):  # the statistics of normalizations
            module.train()(pictures[:8].repeat(max(1, 4 // batch), 1, 1, 1))
    return module, {"x": pictures}


def _text(name: str, batch: int, length: int) -> tuple[Any, dict[str, Any]]:
    import torch
    import transformers

    found: Any
    tokens = torch.randint(1, 1000, (batch, length))
    if name == "bert":
        found = transformers.BertModel(transformers.BertConfig(attn_implementation="eager"), add_pooling_layer=False)
    else:
        sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16}
        config = transformers.LlamaConfig(
            **sizes, num_key_value_heads=4, vocab_size=8192, use_cache=False, attn_implementation="eager"
        )
        found = transformers.LlamaForCausalLM(config)

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = found

        def forward(self, tokens: Any) -> Any:
            return self.net(input_ids=tokens)[0]

    return First(), {"tokens": tokens}


EXPORTED: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "resnet50": partial(_picture, "resnet50", 1),
    "resnet50 x 16": partial(_picture, "resnet50", 16),
    "mobilenet_v3_large x 16": partial(_picture, "mobilenet_v3_large", 16),
    "vit_b_16 x 8": partial(_picture, "vit_b_16", 8),
    "bert-base 8 x 128": partial(_text, "bert", 8, 128),
    "llama, 8 layers, 1 x 512": partial(_text, "llama", 1, 512),
}
"""What makes a net and its inputs, by name."""

RESULTS = {
    "gpu-fp16": "",
    "gpu-fp16:attention=fused": "vit bert llama",
    "gpu-fp16:accumulate=half": "resnet50 bert",
}
"""Requests to compile, and beginnings of the names of nets that they are for; empty for all."""


def rows(name: str, folder: Path) -> Iterator[Row]:
    """Rows of an exported net: ONNX Runtime in float32, our results, ONNX Runtime's own converters, PyTorch.

    `ms` is of a run from NumPy to NumPy, `on the device` of one whose inputs and outputs stay there. Accuracy is
    against ONNX Runtime's CPU provider in float32.
    """
    import torch

    torch.manual_seed(0)
    module, given = EXPORTED[name]()
    module.eval()
    path = folder / "source.onnx"
    with torch.inference_mode():
        torch.onnx.export(
            module, tuple(given.values()), str(path), input_names=list(given), output_names=["y"], opset_version=18,
            dynamo=True, external_data=False, verbose=False,
        )  # fmt: skip
    feeds = {key: value.numpy() for key, value in given.items()}
    expected = [{"y": session_of(path, "CPUExecutionProvider").run(["y"], feeds)[0]}]
    base: Row = {}
    for label, options in (("TF32", {}), ("float32", {"use_tf32": "0"})):
        try:
            found = _measured(path, feeds, expected, options)
        except Exception as error:
            found = {"error": first(error)}
        base = base or found
        yield {"net": name, "engine": f"onnxruntime CUDA, {label}", **found, **_ratios(found, base)}
    for request, beginnings in RESULTS.items():
        if not beginnings or name.startswith(tuple(beginnings.split())):
            yield _compiled(name, request, path, folder / "out", feeds, expected, base)
    for label, convert in (("converter", _converted), ("optimizer", _optimized)):
        row: Row = {"net": name, "engine": f"onnxruntime's {label}, float16"}
        try:
            found = _measured(convert(path, name, folder), feeds, expected, {})
            row |= {**found, **_ratios(found, base)}
        except Exception as error:
            row["error"] = first(error)
        yield row
    for half in (False, True):
        row = {"net": name, "engine": f"torch, {'float16' if half else 'float32'}"}
        try:
            found = _in_torch(module, given, half, expected)
            row |= {**found, **_ratios(found, base)}
        except Exception as error:
            row["error"] = first(error)
        yield row


def _compiled(name: str, request: str, path: Path, target: Path, feeds: Feeds, expected: list[dict], base: Row) -> Row:
    import dovetail
    from dovetail.plugin import load_plugins
    from dovetail.plugin.loading import make_engine
    from dovetail_runtime import RegionExecutor

    registry = load_plugins().registry
    host = [make_engine(registry, "onnxruntime-cpu")]
    row: Row = {"net": name, "engine": request}
    try:
        compiled = dovetail.compile(path, request, verify=False)
        nodes = compiled.plan.nodes
        row["nodes"] = f"{sum(node.backend == 'gpu-fp16' for node in nodes)}/{len(nodes)}"
        checked = RegionExecutor(compiled.model, {"gpu-fp16": host, "host": host})
        row["rounded"] = round(snr(expected, [checked.run(feeds)]), 1)
        compiled.save(target)
        found = _measured(target / "model.onnx", feeds, expected, {})
        row |= {**found, **_ratios(found, base)}
        ours = RegionExecutor(compiled.model, {"gpu-fp16": [make_engine(registry, "onnxruntime-cuda")], "host": host})
        row["by Dovetail"] = round(snr(expected, [ours.run(feeds)]), 1)
        row["ms by Dovetail"] = milliseconds(seconds(partial(ours.run, feeds)))
    except Exception as error:
        row["error"] = first(error)
    return row


def _measured(path: Path, feeds: Feeds, expected: list[dict], options: dict[str, str]) -> Row:
    session = session_of(path, CUDA, options)
    names = [value.name for value in session.get_outputs()]
    kinds = {value.name: value.type for value in session.get_inputs()}
    feeds = {key: array.astype(np.float16) if "float16" in kinds[key] else array for key, array in feeds.items()}
    found = [{"y": session.run(names, feeds)[0].astype(np.float32)}]
    row = {"executed": round(snr(expected, found), 1)}
    row["ms"] = milliseconds(seconds(on_cuda(path, feeds, options)))
    row["on the device"] = milliseconds(seconds(bound(session, feeds)))
    return row


def _ratios(found: Row, base: Row) -> Row:
    both = [key for key in ("ms", "on the device") if found.get(key) and base.get(key)]
    return {f"ratio {key}": round(found[key] / base[key], 2) for key in both}


def _converted(path: Path, name: str, folder: Path) -> Path:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    made = convert_float_to_float16(onnx.load(path), keep_io_types=True)
    onnx.save(made, folder / "converted.onnx")
    return folder / "converted.onnx"


def _optimized(path: Path, name: str, folder: Path) -> Path:
    from onnxruntime.transformers import optimizer

    kinds = {"vit": ("vit", 12, 768), "bert": ("bert", 12, 768), "llama": ("gpt2", 16, 1024)}
    found = next((each for beginning, each in kinds.items() if name.startswith(beginning)), None)
    if found is None:
        raise ValueError("for transformers alone")
    kind, heads, width = found
    made = optimizer.optimize_model(str(path), kind, num_heads=heads, hidden_size=width, use_gpu=True)
    made.convert_float_to_float16(keep_io_types=True)
    made.save_model_to_file(str(folder / "optimized.onnx"))
    return folder / "optimized.onnx"


def _in_torch(module: Any, given: dict[str, Any], half: bool, expected: list[dict]) -> Row:
    import torch

    kind = torch.float16 if half else torch.float32
    module = module.cuda().to(kind)

    def there(value: Any) -> Any:
        value = value.cuda()
        return value.to(kind) if value.is_floating_point() else value

    held = [there(value) for value in given.values()]

    @torch.inference_mode()
    def run() -> np.ndarray:
        return module(*(there(value) for value in given.values())).float().cpu().numpy()

    @torch.inference_mode()
    def stay() -> None:
        module(*held)
        torch.cuda.synchronize()

    return {
        "executed": round(snr(expected, [{"y": run()}]), 1),
        "ms": milliseconds(seconds(run)),
        "on the device": milliseconds(seconds(stay)),
    }
