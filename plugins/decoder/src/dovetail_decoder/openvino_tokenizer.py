"""Conversion of a folder's tokenizer to models of OpenVINO, in a separate process, without network."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from dovetail.errors import DovetailError
from dovetail.plugin import EngineError, TemporaryFolder, Tool

from dovetail_decoder.foreign_files import TOKENIZERS, copy_tokenizer

_INSTALL = "pip install 'dovetail-decoder[openvino-genai]'"
_CONVERTER = "openvino-tokenizers"
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
_PACKAGES = ("openvino", "openvino_tokenizers", "transformers")


def check_tokenizer(folder: Path) -> None:
    """Check that there is a tokenizer, and a converter for it.

    Raises:
        DovetailError: There is none, or a package is missing.
    """
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise DovetailError(
            f"{folder} has no tokenizer, which OpenVINO GenAI needs",
            "copy tokenizer.json and tokenizer_config.json from the source of the export",
        )
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise DovetailError(f"{missing[0]} is not installed, so that no tokenizer can be converted", _INSTALL)


def convert_tokenizer(folder: Path, output: Path) -> None:
    """Write `openvino_tokenizer.xml` and `openvino_detokenizer.xml`.

    The converter replaces functions of `openvino`, so it runs in a separate process.

    Raises:
        DovetailError: The tokenizer cannot be converted; the message is that of the converter.
    """
    with TemporaryFolder("tokenizer") as source:
        copy_tokenizer(folder, source)
        try:
            with Tool.start("dovetail_decoder.openvino_tokenizer", title=_CONVERTER, variables=_OFFLINE) as tool:
                tool.ask("convert", folder=str(source), output=str(output.resolve()))
        except EngineError as error:
            why = f"{folder}: cannot convert the tokenizer: {error.message}"
            raise DovetailError(why, "correct its files, or leave --runtime out") from None


def convert(folder: str, output: str) -> None:
    """Convert a tokenizer in this process: the function of the worker."""
    import openvino
    import openvino_tokenizers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception:  # a configuration that names no class of transformers
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    tokenizer.padding_side = "left"  # generators go on from the last row
    made = openvino_tokenizers.convert_tokenizer(tokenizer, with_detokenizer=True)
    for model, name in zip(made, ("openvino_tokenizer.xml", "openvino_detokenizer.xml"), strict=True):
        openvino.save_model(model, Path(output) / name)
