"""Nets that rate sound: echoes, noise, and lost packets in calls."""

from __future__ import annotations

import numpy as np

from trained_nets.net import Net, Stream, single
from trained_nets.sounds import decibel_mel, speech
from trained_nets.wheels import Wheels

SPEECHMOS = "speechmos==0.0.1.1"
_RATED = 144160  # samples: 9.01 s


def _echoes(rate: int, hidden: int, marked: bool):
    """The far end, the microphone with its echo, and what a canceler leaves of it, with markers of who talks."""

    def streams(wheels: Wheels) -> list[Stream]:
        found, count, size = [], 4 * rate, 512 * rate // 16000
        for index in range(16):
            chance = np.random.default_rng(index)
            near, far = (np.resize(speech(wheels, each, rate), count) for each in (index, (index + 5) % 16))
            room = chance.normal(size=rate // 20) * np.exp(-np.arange(rate // 20) / (rate // 100))
            echo = 0.1 * np.convolve(far, room)[:count]
            talks, echoes = ((1, 0), (0, 1), (1, 1))[index % 3]
            left = talks * near + chance.uniform(0.02, 0.5) * echoes * echo
            bands = [
                np.vstack([
                    decibel_mel(sound, 160, rate, size + 1, size // 2).T,
                    np.full((20 * marked, 160), mark), np.zeros((20 * marked, 160)),
                ])
                for sound, mark in ((far, echoes), (talks * near + echoes * echo, talks), (left, 1))
            ]  # fmt: skip
            zero = np.zeros((4, 1, hidden), np.float32)
            found.append([{"input": np.stack(bands)[None].astype(np.float32), "h0": zero}])
        return found

    return streams


def _noisy(wheels: Wheels) -> list[np.ndarray]:
    """Nine seconds of speech in noise of many levels, some of it clipped."""
    found = []
    for index in range(16):
        chance = np.random.default_rng(index)
        sound = np.resize(speech(wheels, index), _RATED)
        sound = sound + chance.normal(0, 10 ** chance.uniform(-4, -1), _RATED)
        limit = 0.2 if index % 4 == 3 else 1.0
        found.append(np.clip(sound, -limit, limit).astype(np.float32))
    return found


def _waveforms(wheels: Wheels) -> list[Stream]:
    return single("input_1", (sound[None] for sound in _noisy(wheels)))


def _spectra(wheels: Wheels) -> list[Stream]:
    return single("input_1", (decibel_mel(sound[:-160], 120, 16000, 321, 160).T[None] for sound in _noisy(wheels)))


def _lost_packets(wheels: Wheels) -> list[Stream]:
    """The logarithm of a spectrum of speech of which packets of 20 ms are missing, and a rater."""
    found = []
    for index in range(16):
        chance = np.random.default_rng(index)
        sound = np.resize(speech(wheels, index), 200 * 320).reshape(-1, 320).copy()
        sound[chance.random(200) < 0.03 * (index % 5)] = 0
        padded = np.pad(sound.reshape(-1), (256, 256))
        framed = np.lib.stride_tricks.sliding_window_view(padded, 512)[::256] * np.hamming(513)[:-1]
        power = np.abs(np.fft.rfft(framed)) ** 2
        silent = power == 0
        power[silent] = power[~silent].min() * 1e-12
        levels = (np.log(power) / 20).astype(np.float32)
        found.append([
            {"degraded_audio": levels[None, None], "rater_embed": chance.normal(size=(1, 64)).astype(np.float32)}
        ])  # fmt: skip
    return found


NETS = (
    Net("AECMOS", SPEECHMOS, "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx",
        "convolutions with Swish, and GRU; spoken sentences with echoes", _echoes(16000, 64, True)),
    Net("AECMOS scenarioless", SPEECHMOS, "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx",
        "the same, without markers of who talks", _echoes(16000, 64, False)),
    Net("AECMOS 48 kHz", SPEECHMOS, "speechmos/aecmos_models/Run_1668423760_Stage_0.onnx",
        "the same, wider", _echoes(48000, 96, True)),
    Net("DNSMOS", SPEECHMOS, "speechmos/dnsmos_models/sig_bak_ovr.onnx",
        "noise in speech, spectrum by convolution; spoken sentences in noise", _waveforms),
    Net("DNSMOS P.808", SPEECHMOS, "speechmos/dnsmos_models/model_v8.onnx",
        "the same, of a mel spectrum", _spectra),
    Net("PLCMOS", SPEECHMOS, "speechmos/plcmos_models/plcmos_v2.onnx",
        "lost packets, convolutions and LSTM; spoken sentences with gaps", _lost_packets),
)  # fmt: skip
