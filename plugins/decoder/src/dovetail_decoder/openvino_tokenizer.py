"""Conversion of a folder's tokenizer to models of OpenVINO, in a separate process, without network.

python -m dovetail_decoder.openvino_tokenizer FOLDER OUT
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from dovetail.errors import DovetailError
from dovetail.plugin import PythonProcess, TemporaryFolder, end_with_parent

from dovetail_decoder.foreign_files import TOKENIZERS, copy_tokenizer

_INSTALL = "pip install 'dovetail-decoder[openvino-genai]'"
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
    with TemporaryFolder("tokenizer") as place:
        source = place / "source"
        source.mkdir()
        copy_tokenizer(folder, source)
        with (place / "said").open("wb") as said:
            words = [str(source), str(output.resolve())]
            code = PythonProcess("dovetail_decoder.openvino_tokenizer", words, stdout=said, stderr=said).wait()
        lines = (place / "said").read_text(errors="replace").strip().splitlines()
    if code:
        why = lines[-1] if lines else f"the converter ended with {code}"
        raise DovetailError(
            f"{folder}: openvino-tokenizers cannot convert the tokenizer: {why}",
            "correct its files, or leave --runtime out",
        )


def main(folder: str, output: str) -> int:
    """Convert a tokenizer."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    import openvino
    import openvino_tokenizers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception:  # a configuration that names no class of transformers
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        tokenizer.padding_side = "left"  # generators go on from the last row
        made = openvino_tokenizers.convert_tokenizer(tokenizer, with_detokenizer=True)
        for model, name in zip(made, ("openvino_tokenizer.xml", "openvino_detokenizer.xml"), strict=True):
            openvino.save_model(model, Path(output) / name)
    except Exception as error:  # whatever the libraries raise
        print(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    end_with_parent()
    sys.exit(main(*sys.argv[1:]))
