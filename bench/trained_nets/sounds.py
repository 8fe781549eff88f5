"""Sounds: sentences spoken by espeak-ng where it is installed, else vowels and consonants made here."""

from __future__ import annotations

import shutil
import subprocess
import wave
from functools import cache
from math import gcd
from pathlib import Path

import numpy as np
from scipy.signal import lfilter, resample_poly

from trained_nets.texts import ENGLISH
from trained_nets.wheels import Wheels

FORMANTS = ((700, 1200, 2600), (500, 1900, 2500), (300, 2300, 3000))
VOICES = ("en", "en-us", "en+f3", "en-us+m7", "en+f5", "en-gb-x-rp")


@cache
def speech(wheels: Wheels, index: int, rate: int = 16000) -> np.ndarray:
    """A spoken sentence between half seconds of faint noise, as float32 in -1 to 1."""
    return spoken(wheels, ENGLISH[index % len(ENGLISH)], index, rate, "")


def spoken(wheels: Wheels, sentence: str, index: int, rate: int = 16000, kind: str = "passage") -> np.ndarray:
    """A spoken text between half seconds of faint noise, in the voice of a number; texts of a kind differ by it."""
    voice = VOICES[index % len(VOICES)]
    if shutil.which("espeak-ng"):
        path = wheels.scratch("speech") / f"{kind}{index}.wav"
        if not path.exists():
            speed = str(140 + 10 * (index % 5))
            subprocess.run(["espeak-ng", "-v", voice, "-s", speed, "-w", str(path), sentence], check=True)
        sound, found = _read(path)
    else:
        sound, found = _vowels(sentence, index), 16000
    step = gcd(found, rate)
    sound = resample_poly(sound, rate // step, found // step)
    noise = np.random.default_rng(index).normal(0, 2e-3, len(sound) + rate)
    noise[rate // 2 : rate // 2 + len(sound)] += 0.6 * sound / max(np.abs(sound).max(), 1e-9)
    return noise.astype(np.float32)


def _read(path: Path) -> tuple[np.ndarray, int]:
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        return samples / 32768, file.getframerate()


def _vowels(sentence: str, seed: int) -> np.ndarray:
    """A vocal tract of three formants, with a pulse train for vowels and noise for consonants."""
    chance, rate, parts = np.random.default_rng(seed), 16000, []
    for letter in sentence.lower():
        count = int(rate * chance.uniform(0.05, 0.12))
        if letter in "aeiou":
            pitch = chance.uniform(90, 220)
            sound = (np.arange(count) % int(rate / pitch) == 0).astype(float)
            for formant in np.array([[700, 1200, 2600], [500, 1900, 2500], [300, 2300, 3000]])[
                "aeiou".index(letter) % 3
            ]:
                radius, angle = 0.97, 2 * np.pi * formant / rate
                sound = lfilter([1 - radius], [1, -2 * radius * np.cos(angle), radius * radius], sound)
        else:
            sound = 0.02 * chance.normal(size=count) * letter.isalpha()
        parts.append(sound * np.hanning(count))
    return np.concatenate(parts)


def log_mel(sound: np.ndarray, bands: int = 80, rate: int = 16000, size: int = 400, hop: int = 160) -> np.ndarray:
    """Whisper's features, bands x frames: the logarithm of a mel spectrogram with Slaney's triangles, -1 to 1.5."""
    framed = np.lib.stride_tricks.sliding_window_view(np.pad(sound, size // 2, "reflect"), size)[::hop][:-1]
    power = np.abs(np.fft.rfft(framed * np.hanning(size + 1)[:-1])) ** 2
    mels = np.log10(np.maximum(_triangles(bands, rate, size) @ power.T, 1e-10))
    return ((np.maximum(mels, mels.max() - 8) + 4) / 4).astype(np.float32)


def decibel_mel(sound: np.ndarray, bands: int, rate: int, size: int, hop: int) -> np.ndarray:
    """Power in mel bands, in decibels below the loudest band: 1 there, -1 at 80 dB less."""
    framed = np.lib.stride_tricks.sliding_window_view(np.pad(sound, size // 2), size)[::hop]
    power = np.abs(np.fft.rfft(framed * np.hanning(size + 1)[:-1])) ** 2
    levels = 10 * np.log10(np.maximum(_triangles(bands, rate, size) @ power.T, 1e-10))
    return ((np.maximum(levels - levels.max(), -80) + 40) / 40).astype(np.float32)


def filter_bank(sound: np.ndarray, bands: int, rate: int = 16000) -> np.ndarray:
    """The logarithm of power in mel bands, frames x bands: frames of 25 ms every 10 ms, without a window."""
    framed = np.lib.stride_tricks.sliding_window_view(np.pad(sound, (0, 80)), 400)[::160]
    power = np.abs(np.fft.rfft(framed, 512)) ** 2 / 512
    mels = np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), bands + 2)
    corners = np.floor(513 * 700 * (10 ** (mels / 2595) - 1) / rate)[:, None]
    widths, bins = np.maximum(np.diff(corners, axis=0), 1), np.arange(257)
    rising, falling = (bins - corners[:-2]) / widths[:-1], (corners[2:] - bins) / widths[1:]
    levels = power @ np.maximum(0, np.minimum(rising, falling)).T
    return np.log(np.maximum(levels, np.finfo(float).eps)).astype(np.float32)


@cache
def _triangles(bands: int, rate: int, size: int) -> np.ndarray:
    """Slaney's mel scale is linear up to 1000 Hz and logarithmic above; every triangle has the same area."""
    linear, step = 200 / 3, np.log(6.4) / 27
    marks = np.linspace(0, 15 + np.log(rate / 2 / 1000) / step, bands + 2)
    corners = np.where(marks < 15, marks * linear, 1000 * np.exp(step * (marks - 15)))
    frequencies = np.fft.rfftfreq(size, 1 / rate)
    rising = (frequencies - corners[:-2, None]) / np.diff(corners)[:-1, None]
    falling = (corners[2:, None] - frequencies) / np.diff(corners)[1:, None]
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (corners[2:] - corners[:-2]))[:, None]


def music(seed: int, rate: int, seconds: float) -> np.ndarray:
    """Plucked notes with overtones, some at the same time."""
    chance, sound = np.random.default_rng(seed), np.zeros(int(rate * seconds), np.float32)
    for _ in range(int(seconds * 6)):
        start, pitch = chance.integers(len(sound)), 440 * 2 ** (chance.integers(-24, 20) / 12)
        time = np.arange(min(len(sound) - start, rate)) / rate
        tone = sum(np.sin(2 * np.pi * pitch * k * time) / k**1.5 for k in range(1, 6))
        sound[start : start + len(time)] += (0.2 * tone * np.exp(-4 * time)).astype(np.float32)
    return sound / max(np.abs(sound).max(), 1e-9) * 0.7


def brain_waves(seed: int, rate: int, seconds: float) -> np.ndarray:
    """A made electroencephalogram: noise that falls with frequency, alpha waves, and spindles of 13 Hz."""
    chance, count = np.random.default_rng(seed), int(rate * seconds)
    spectrum = np.fft.rfft(chance.normal(size=count))
    spectrum /= np.maximum(np.fft.rfftfreq(count, 1 / rate), 0.5)
    sound, time = np.fft.irfft(spectrum, count), np.arange(count) / rate
    sound = 20 * sound / sound.std() + 6 * np.sin(2 * np.pi * 9.5 * time) * (1 + np.sin(0.7 * time))
    for start in chance.uniform(0, seconds - 1, int(seconds / 8)):
        sound += 25 * np.sin(2 * np.pi * 13 * time) * np.exp(-(((time - start - 0.5) / 0.25) ** 2))
    return sound
