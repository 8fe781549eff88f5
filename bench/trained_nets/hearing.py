"""Nets that listen: voice activity, wake words, pitches, electroencephalograms."""

from __future__ import annotations

import numpy as np
from scipy.signal import spectrogram

from trained_nets.net import Net, Stream, single
from trained_nets.sounds import brain_waves, filter_bank, log_mel, music, speech
from trained_nets.wheels import Wheels

SILERO, OPENWAKEWORD, ONNX_ASR = "silero-vad==6.2.3", "openwakeword==0.4.0", "onnx-asr==0.12.0"
EFFICIENTWORD = "EfficientWord-Net==1.0.5"


def _silero(rate_input: bool):
    def streams(wheels: Wheels) -> list[Stream]:
        found = []
        for index in range(8):
            sound = speech(wheels, index)
            chunks = sound[: len(sound) // 512 * 512].reshape(-1, 512)[:96]
            before = np.vstack([np.zeros((1, 64), np.float32), chunks[:-1, -64:]])
            feeds = [{"input": np.hstack([before[i], chunks[i]])[None]} for i in range(len(chunks))]
            for each in feeds if rate_input else ():
                each["sr"] = np.array(16000, np.int64)
            feeds[0]["state"] = np.zeros((2, 1, 128), np.float32)
            found.append(feeds)
        return found

    return streams


def _silero_sequences(wheels: Wheels) -> list[Stream]:
    found = []
    for index in range(16):
        sound = speech(wheels, index)
        chunks = sound[: len(sound) // 512 * 512].reshape(-1, 512)[:96]
        before = np.vstack([np.zeros((1, 64), np.float32), chunks[:-1, -64:]])
        zero = np.zeros((1, 1, 128), np.float32)
        found.append([{"input": np.hstack([before, chunks]), "h": zero, "c": zero}])
    return found


def _turns(wheels: Wheels) -> list[Stream]:
    """The last eight seconds of sentences, whole or cut off, as the features of Whisper."""
    found, count = [], 8 * 16000
    for index in range(16):
        for share in (1.0, 0.8, 0.6, 0.4):
            sound = speech(wheels, index)
            sound = sound[: int(len(sound) * share)][-count:]
            sound = np.pad(sound, (count - len(sound), 0))
            found.append(log_mel((sound - sound.mean()) / sound.std())[None])
    return single("input_features", found)


def _samples(wheels: Wheels) -> list[Stream]:
    return single("input", ((speech(wheels, index)[None, 4000:36000] * 32767).round() for index in range(16)))


def _mel_windows(wheels: Wheels) -> list[np.ndarray]:
    """What openwakeword's first net makes of speech, scaled as its second one wants it."""
    import onnxruntime

    path = wheels.file(OPENWAKEWORD, "openwakeword/resources/models/melspectrogram.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name, found = session.get_inputs()[0].name, []
    for index in range(16):
        spectrum = session.run(None, {name: (speech(wheels, index)[None] * 32767).round()})[0].squeeze() / 10 + 2
        found.append(np.stack([spectrum[start : start + 76] for start in range(0, len(spectrum) - 76, 8)]))
    return found


def _embedded(wheels: Wheels) -> list[Stream]:
    return single("input_1", (windows[:8, :, :, None].astype(np.float32) for windows in _mel_windows(wheels)))


def _wake_words(wheels: Wheels, name: str, frames: int) -> list[Stream]:
    import onnxruntime

    path = wheels.file(OPENWAKEWORD, "openwakeword/resources/models/embedding_model.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = []
    for windows in _mel_windows(wheels):
        embedded = session.run(None, {"input_1": windows[:, :, :, None].astype(np.float32)})[0].reshape(-1, 96)
        found += [embedded[start : start + frames][None] for start in range(0, len(embedded) - frames, 4)]
    return single(name, found)


def _key_words(wheels: Wheels) -> list[Stream]:
    """One and a half seconds out of each of 32 places of spoken sentences, as filter banks."""
    sounds = (np.resize(speech(wheels, index % 16), 64000)[8000 + 16000 * (index // 16) :] for index in range(32))
    return single("input", (filter_bank(sound[:24000], 64)[None, None] for sound in sounds))


def _melodies(wheels: Wheels) -> list[Stream]:
    sounds = [music(seed, 22050, 43844 / 22050) for seed in range(10)]
    sounds += [np.resize(speech(wheels, index, 22050), 43844) for index in range(6)]
    return single("serving_default_input_2:0", (sound[:43844].astype(np.float32)[None, :, None] for sound in sounds))


def _seizures(wheels: Wheels) -> list[Stream]:
    found = []
    for seed in range(32):
        wave = brain_waves(seed, 200, 60)
        _, _, power = spectrogram((wave - wave.mean()) / wave.std(), 200, nperseg=200, noverlap=100)
        levels = np.log10(power[:100] + 1e-12)
        levels -= levels.mean(axis=1, keepdims=True)
        found.append((levels / levels.std(axis=1, keepdims=True)).astype(np.float32)[None])
    return single("x", found)


def _pitches(wheels: Wheels) -> list[Stream]:
    bounds = {"fmin": np.array(46.875, np.float32), "fmax": np.array(2093.75, np.float32)}
    sounds = [music(seed, 16000, 3) for seed in range(10)] + [speech(wheels, index) for index in range(6)]
    return [[{"audio": sound.astype(np.float32)[None, :48000], **bounds}] for sound in sounds]


def _waveforms(rate: int):
    """Three seconds of spoken sentences, with their lengths."""

    def streams(wheels: Wheels) -> list[Stream]:
        found, count = [], 3 * rate
        for index in range(16):
            sound = np.resize(speech(wheels, index, rate), count).astype(np.float32)[None]
            found.append([{"waveforms": sound, "waveforms_lens": np.array([count], np.int64)}])
        return found

    return streams


def _front_end(name: str, file: str, about: str, rate: int = 16000) -> Net:
    """A net that prepares sound for speech recognition."""
    return Net(name, ONNX_ASR, f"onnx_asr/preprocessors/data/{file}", f"{about}; spoken sentences", _waveforms(rate))


NETS = (
    Net("silero-vad", SILERO, "silero_vad/data/silero_vad_16k_op15.onnx",
        "voice activity, LSTM; spoken sentences, state fed back", _silero(True), {"stateN": "state"}),
    Net("silero-vad 5 ifless", SILERO, "silero_vad/data/silero_vad_op18_ifless.onnx",
        "the same, both rates in branches", _silero(True), {"stateN": "state"}),
    Net("silero-vad half", SILERO, "silero_vad/data/silero_vad_half.onnx",
        "the same, weights stored in float16", _silero(False), {"stateN": "state"}),
    Net("silero-vad sequence", SILERO, "silero_vad/data/silero_vad_16k_sequence.onnx",
        "the same, a whole sentence at once", _silero_sequences),
    Net("end of turn int8", "pipecat-ai==1.14.0", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        "Whisper's encoder, quantized; spoken sentences", _turns),
    Net("melspectrogram", OPENWAKEWORD, "openwakeword/resources/models/melspectrogram.onnx",
        "spectrum by convolution; spoken sentences", _samples),
    Net("speech embedding", OPENWAKEWORD, "openwakeword/resources/models/embedding_model.onnx",
        "convolutions; windows of the spectrum", _embedded),
    Net("hey Jarvis", OPENWAKEWORD, "openwakeword/resources/models/hey_jarvis_v0.1.onnx",
        "wake word; embedded speech", lambda wheels: _wake_words(wheels, "x.1", 16)),
    Net("timer", OPENWAKEWORD, "openwakeword/resources/models/timer_v0.1.onnx",
        "commands; embedded speech", lambda wheels: _wake_words(wheels, "onnx::Flatten_0", 34)),
    Net("key words", EFFICIENTWORD, "eff_word_net/models/resnet_50_arc/slim_93%_accuracy_72.7390%.onnx",
        "ResNet-50 on filter banks; spoken sentences", _key_words),
    Net("key words int8", EFFICIENTWORD, "eff_word_net/models/resnet_50_arc/slim_93%_accuracy_72.7390%_qint8.onnx",
        "the same, quantized", _key_words),
    Net("basic-pitch", "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "constant-Q transform and convolutions; made notes and speech", _melodies),
    Net("SwiftF0", "swift-f0==0.3.0", "swift_f0/model.onnx",
        "pitch, spectrum and convolutions; made notes and speech", _pitches),
    Net("silero-vad branches", "livekit-plugins-silero==1.8.9", "livekit/plugins/silero/resources/silero_vad.onnx",
        "voice activity, the whole net in branches; spoken sentences, state fed back", _silero(True),
        {"stateN": "state"}),
    _front_end("Kaldi features", "kaldi_conv.onnx", "filter banks, spectrum by convolution"),
    _front_end("WeSpeaker features", "wespeaker.onnx", "filter banks, spectrum by STFT"),
    _front_end("Whisper features", "whisper80_conv.onnx", "spectrum by convolution"),
    _front_end("NeMo features", "nemo128_conv.onnx", "spectrum by convolution, normalized"),
    _front_end("GigaAM features", "gigaam_v3_conv.onnx", "spectrum by convolution"),
    _front_end("48 to 16 kHz", "resample_48_16.onnx", "resampling by convolution", 48000),
    _front_end("22 to 8 kHz", "resample_22_8.onnx", "resampling by convolution", 22050),
    Net("seizures", "brainmaze-eeg-models==0.1.0", "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx",
        "convolutions and LSTM; made electroencephalograms", _seizures, classes=("probs",)),
)  # fmt: skip
