"""Language models as other tools export them: Optimum, PyTorch's two exporters, and ONNX Runtime's optimizer.

    PYTHON bench/exports_of_others.py optimum FOLDER    needs optimum-onnx, with a transformers that it takes
    PYTHON bench/exports_of_others.py torch FOLDER      needs torch, onnxscript and transformers
    PYTHON bench/exports_of_others.py fused FOLDER      needs onnxruntime's optimizer; fuses what the others wrote
    python bench/exports.py table FOLDER

Small random nets, in folders that `bench/exports.py` finds; what a tool refuses is said.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LAYERS, HEADS, SHARED, PAST, NEW, ROWS = 2, 4, 2, 5, 4, 2
PLAIN = {
    "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": 128, "max_position_embeddings": 128,
}  # fmt: skip
GROUPED = PLAIN | {"num_key_value_heads": SHARED}
GPT = {"vocab_size": 512, "n_embd": 64, "n_layer": LAYERS, "n_head": HEADS}
PAIR = {
    "vocab_size": 512, "d_model": 64, "encoder_layers": LAYERS, "decoder_layers": LAYERS, "pad_token_id": 0,
    "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
}  # fmt: skip
DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {  # class, configuration, and what it is given
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", GROUPED | {"head_dim": 16}),
    "mistral": ("MistralForCausalLM", "MistralConfig", GROUPED),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", GROUPED | {"head_dim": 16}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", GROUPED | {"head_dim": 16, "sliding_window": 8}),
    "phi": ("PhiForCausalLM", "PhiConfig", PLAIN),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", GROUPED | {"pad_token_id": 0}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT | {"n_positions": 128}),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", PLAIN),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", GPT | {"n_positions": 128, "rotary_dim": 8}),
    "codegen": ("CodeGenForCausalLM", "CodeGenConfig", GPT | {"n_positions": 128, "rotary_dim": 8}),
    "bloom": (
        "BloomForCausalLM", "BloomConfig", {"vocab_size": 512, "hidden_size": 64, "n_layer": LAYERS, "n_head": HEADS}
    ),
    "opt": (
        "OPTForCausalLM", "OPTConfig",
        {
            "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": LAYERS, "ffn_dim": 128,
            "word_embed_proj_dim": 64, "num_attention_heads": HEADS, "max_position_embeddings": 128,
        },
    ),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", GROUPED),
    "granite": ("GraniteForCausalLM", "GraniteConfig", GROUPED),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3Config", GROUPED | {"pad_token_id": 0}),
}  # fmt: skip
PAIRS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "t5": (
        "T5ForConditionalGeneration", "T5Config",
        {
            "vocab_size": 512, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": LAYERS, "num_heads": HEADS,
            "decoder_start_token_id": 0,
        },
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", PAIR | {"max_position_embeddings": 128}),
    "marian": ("MarianMTModel", "MarianConfig", PAIR | {"max_position_embeddings": 128}),
    "whisper": (
        "WhisperForConditionalGeneration", "WhisperConfig",
        PAIR | {"max_target_positions": 64, "num_mel_bins": 16, "decoder_start_token_id": 3, "bos_token_id": 1,
                "eos_token_id": 2, "suppress_tokens": None, "begin_suppress_tokens": None},
    ),
}  # fmt: skip
PICTURES = {
    "hidden_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 128,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
ENCODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertModel", "BertConfig", PLAIN),
    "distilbert": (
        "DistilBertModel", "DistilBertConfig",
        {"vocab_size": 512, "dim": 64, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 128},
    ),
    "roberta": ("RobertaForSequenceClassification", "RobertaConfig", PLAIN),
    "albert": ("AlbertModel", "AlbertConfig", PLAIN | {"embedding_size": 32}),
    "mpnet": ("MPNetModel", "MPNetConfig", PLAIN),
    "electra": ("ElectraForTokenClassification", "ElectraConfig", PLAIN | {"embedding_size": 64}),
    "deberta2": (
        "DebertaV2Model", "DebertaV2Config",
        PLAIN | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False},
    ),
    "modernbert": ("ModernBertModel", "ModernBertConfig", PLAIN | {"pad_token_id": 0}),
    "vit": ("ViTForImageClassification", "ViTConfig", PICTURES),
}  # fmt: skip
TASKS = {"roberta": "text-classification", "electra": "token-classification", "vit": "image-classification"}
FUSED = {  # what ONNX Runtime's optimizer calls the family
    "bert": "bert", "distilbert": "bert", "roberta": "bert", "albert": "bert", "mpnet": "bert", "electra": "bert",
    "deberta2": "bert", "vit": "vit", "gpt2": "gpt2", "llama": "gpt2", "qwen2": "gpt2", "gpt_neox": "gpt_neox",
    "t5": "t5", "bart": "bart", "whisper": "bart", "marian": "bart",
}  # fmt: skip


def main() -> None:
    """Make the exports of one tool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=["optimum", "torch", "fused"])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    for name, made in {"optimum": of_optimum, "torch": of_torch, "fused": fused}[options.tool](options.folder):
        print(f"{name}: {made}", flush=True)


def _net(name: str, class_: str, config: str, given: dict[str, Any]) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    return getattr(transformers, class_)(getattr(transformers, config)(**given)).eval()


def of_optimum(folder: Path) -> Iterator[tuple[str, str]]:
    """Export with Optimum: decoders with caches, pairs also merged, encoders."""
    from optimum.exporters.onnx import onnx_export_from_model

    for nets, task in (
        (DECODERS, "text-generation-with-past"),
        (PAIRS, "text2text-generation-with-past"),
        (ENCODERS, "feature-extraction"),
    ):
        for name, described in nets.items():
            wanted = "automatic-speech-recognition-with-past" if name == "whisper" else TASKS.get(name, task)
            out = folder / f"{name}_optimum"
            try:
                net = _net(name, *described)
                onnx_export_from_model(net, out, task=wanted, opset=17, do_validation=False)
                net.config.save_pretrained(out)
            except Exception as error:  # whatever a tool raises
                yield name, f"{type(error).__name__}: {str(error)[:120]}"
                continue
            yield name, ", ".join(sorted(path.stem for path in out.glob("*.onnx")))


def of_torch(folder: Path) -> Iterator[tuple[str, str]]:
    """Export with both of PyTorch's exporters; caches are inputs and outputs."""
    import torch
    from transformers.cache_utils import DynamicCache

    class Decoder(torch.nn.Module):
        def __init__(self, net: Any):
            super().__init__()
            self.net = net

        def forward(self, input_ids: Any, attention_mask: Any, *past: Any) -> Any:
            cache = DynamicCache()
            for layer in range(len(past) // 2):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            found = self.net(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
            return found.logits, *(
                part for layer in found.past_key_values.layers for part in (layer.keys, layer.values)
            )

    names = [f"{{}}.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    inputs = ["input_ids", "attention_mask", *(name.format("past_key_values") for name in names)]
    outputs = ["logits", *(name.format("present") for name in names)]
    ids = {0: "batch_size", 1: "sequence_length"}
    mask = {0: "batch_size", 1: "total_sequence_length"}
    axes = {"input_ids": ids, "attention_mask": mask}
    axes |= dict.fromkeys(inputs[2:], {0: "batch_size", 2: "past_sequence_length"})
    for name, described in DECODERS.items():
        out = folder / f"{name}_torch"
        out.mkdir(parents=True, exist_ok=True)
        for exporter in ("dynamo", "torchscript"):
            try:
                net = _net(name, *described)
                if exporter == "torchscript":
                    net.set_attn_implementation("eager")
                config = net.config
                size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
                heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
                past = [torch.randn(ROWS, heads, PAST, size) for _ in range(2 * LAYERS)]
                given = (
                    torch.ones(ROWS, NEW, dtype=torch.int64),
                    torch.ones(ROWS, PAST + NEW, dtype=torch.int64),
                    *past,
                )
                keywords: dict[str, Any] = {"input_names": inputs, "output_names": outputs}
                if exporter == "dynamo":
                    open_ = [dict.fromkeys(axes[one], torch.export.Dim.DYNAMIC) for one in inputs]
                    shapes = (open_[0], open_[1], tuple(open_[2:]))
                    keywords |= {"dynamo": True, "dynamic_shapes": shapes, "external_data": False, "verbose": False}
                else:
                    keywords |= {"dynamo": False, "dynamic_axes": axes, "opset_version": 17}
                torch.onnx.export(Decoder(net), given, str(out / f"{exporter}.onnx"), **keywords)
            except Exception as error:  # whatever a tool raises
                yield f"{name} {exporter}", f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
                continue
            yield f"{name} {exporter}", "ok"


def fused(folder: Path) -> Iterator[tuple[str, str]]:
    """Optimize what Optimum wrote with ONNX Runtime's optimizer for transformers, in float32 and float16."""
    from onnxruntime.transformers.optimizer import optimize_model

    for path in sorted(folder.glob("*_optimum/*.onnx")):
        name = path.parent.name.removesuffix("_optimum")
        if name not in FUSED or "merged" in path.stem:
            continue
        for precision in ("float32", "float16"):
            out = folder / f"{name}_fused" / f"{path.stem}_{precision}.onnx"
            out.parent.mkdir(exist_ok=True)
            try:
                made = optimize_model(str(path), model_type=FUSED[name], num_heads=HEADS, hidden_size=64)
                if precision == "float16":
                    made.convert_float_to_float16(keep_io_types=True)
                made.save_model_to_file(str(out))
            except Exception as error:  # whatever a tool raises
                yield f"{name} {path.stem} {precision}", f"{type(error).__name__}: {str(error)[:120]}"
                continue
            yield f"{name} {path.stem} {precision}", "ok"


if __name__ == "__main__":
    main()
