"""`dovetail tune FOLDER` of a language model: what competes, what is asked for, who wins, and what is written."""

import json
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import load_plugins
from dovetail_decoder import tuning
from dovetail_decoder.reading import chain_of, read_folder
from dovetail_decoder.states import Generation
from dovetail_decoder.timing import Times
from dovetail_decoder.tokens import Prompt
from dovetail_decoder.tuned_generator import Trial, TunedGenerator
from dovetail_decoder.tuning import DEFAULTS, specs_of
from dovetail_tune.deadline import Deadline
from dovetail_tune.folders import tuned_folder
from dovetail_tune.journal import Journal
from dovetail_verify.accuracy.goals import Goals

EXAMPLE = Path(__file__).parents[3] / "examples" / "decoder"
MODEL, PROMPTS = EXAMPLE / "model", EXAMPLE / "prompts.txt"
BACKENDS = ("cpu-bf16", "cpu-int8", "gpu-fp16")
NBITS = "cpu-int8:weights=int4,kernel=nbits,accuracy_level=4"


def tuned(output=None, **request):
    return tuned_folder(MODEL, load_plugins(), output, **{"data": PROMPTS, "max_kl": 0.5, **request})


@pytest.mark.parametrize(
    ("backends", "specs"),
    [
        ([], ["host", *(one for name in BACKENDS for one in DEFAULTS if one.startswith(name))]),
        (["cpu-bf16"], ["host", "cpu-bf16"]),
        (["cpu-int8"], ["host", *(one for one in DEFAULTS if one.startswith("cpu-int8"))]),
        ([NBITS, "host"], ["host", NBITS]),
    ],
)
def test_a_backend_without_options_competes_with_what_suits_a_decoder(backends, specs, monkeypatch):
    monkeypatch.setattr(tuning, "find_spec", lambda name: object())
    assert list(specs_of(backends, load_plugins())) == specs


def test_a_runtime_competes_where_what_it_needs_is_installed(monkeypatch):
    for installed in (True, False):
        monkeypatch.setattr(tuning, "find_spec", lambda name, installed=installed: object() if installed else None)
        found = specs_of(["cpu-int8"], load_plugins())
        assert any(spec.endswith("--runtime openvino-genai") for spec in found) == installed


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"max_kl": None}, "no goal says how accurate"),
        ({"min_snr": 30}, "--min-snr is no goal over the next token"),
        ({"max_kl": "much"}, "much"),
        ({"data": None}, "no prompts to tune on"),
        ({"cluster": "tcp://10.0.0.1:8786"}, "--cluster is for single models"),
        ({"plot": "front.svg"}, "--plot is for single models"),
        ({"threads": (-1,)}, "--threads -1"),
        ({"budget": 0}, "--budget 0"),
        ({"backends": ["cpu-int9"]}, "cpu-int9"),
        ({"backends": ["cpu-int8:weights=int5"]}, "int5"),
    ],
)
def test_what_cannot_be_tuned_is_an_error_before_anything_is_compiled(request_, says):
    with pytest.raises(DovetailError, match=says):
        tuned(**request_)


def test_data_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(DovetailError, match=r"none\.txt"):
        tuned(data=tmp_path / "none.txt")


def test_the_source_is_no_place_for_the_winner():
    with pytest.raises(DovetailError, match="replace its own source"):
        tuned(output=MODEL)


@pytest.mark.parametrize("streams", [2, 5])
def test_several_streams_give_the_scores_of_one(streams):
    chain = chain_of(read_folder(MODEL))
    prompt = Prompt(np.array([3, 4, 5, 6]), "prompt")
    one, several = (Generation(chain, prompt, streams=count) for count in (1, streams))
    for ids in (prompt.ids, np.array([7]), np.array([3])):
        exact, found = one.feed(ids), several.feed(ids)
        assert found.shape == exact.shape
        assert np.allclose(found, exact, atol=1e-5)


def trial(spec, tokens, meets=True, threads=0):
    turns = [Times(0.1, seconds) for seconds in tokens]
    return Trial(spec, Path(spec), threads, 0.01, 1.0, 1.0, 1000, None, turns, meets, "" if meets else "misses a goal")


@pytest.mark.parametrize(
    ("trials", "winner"),
    [
        ([trial("host", [2.0, 2.1]), trial("a", [1.0, 1.1]), trial("b", [1.5, 1.4])], "a"),
        ([trial("host", [2.0, 2.1]), trial("a", [1.0, 1.1], meets=False), trial("b", [1.5, 1.4])], "b"),
        ([trial("host", [1.0, 1.0]), trial("a", [0.99, 0.99])], "host"),  # within what two processes differ by
        ([trial("host", [1.0, 1.0], meets=False), trial("a", [], meets=False)], None),
    ],
)
def test_the_fastest_token_within_the_goals_wins(trials, winner):
    outcome = TunedGenerator(read_folder(MODEL), trials, [], 1, ExitStack())
    assert (outcome.winner and outcome.winner.spec) == winner
    assert outcome.is_met == (winner is not None)
    assert json.dumps(outcome.as_dict())
    if winner is None:
        with pytest.raises(DovetailError, match="no candidate meets the goals"):
            outcome.save("out")


@pytest.mark.parametrize(
    ("shown", "winner", "judged"),
    [
        ({"a": 0.1}, "a", "KL 0.1, the same next token in 100.00 %"),
        ({"a": 0.9, "b": 0.2}, "b", "KL 0.2, the same next token in 100.00 %"),
        ({"a": 0.9, "b": 0.9}, "host", ""),  # and not c, since three choices would fit these prompts
    ],
)
def test_the_winner_is_judged_on_prompts_that_no_candidate_saw(shown, winner, judged, monkeypatch, tmp_path):
    seen = []

    def compared(source, folder, prompts, before, is_judged):
        seen.append((folder.name, [prompt.where for prompt in prompts]))
        return SimpleNamespace(kl=shown[folder.name], top1=1.0, rise=None)

    monkeypatch.setattr(tuning, "measured", lambda source, prompts: None)
    monkeypatch.setattr(tuning, "compared", compared)
    monkeypatch.setattr(tuning, "read_folder", lambda folder: folder)
    prompts = [Prompt(np.array([3]), f"prompt {number}") for number in range(8)]
    goals, journal = Goals(max_kl=0.5), Journal(None, {})
    tuner = tuning.GeneratorTuner(None, prompts, goals, 1, tmp_path, journal, Deadline(None), None)
    trials = [trial("host", [9.0] * 3), trial("a", [1.0] * 3), trial("b", [2.0] * 3), trial("c", [3.0] * 3)]
    tuner._judge_winner(trials)
    outcome = TunedGenerator(read_folder(MODEL), trials, tuner.notes, 1, ExitStack(), tuner.judged)
    assert (outcome.winner.spec, outcome.judged) == (winner, judged)
    assert seen == [(name, ["prompt 3", "prompt 7"]) for name in shown]
    losers = [one for one in trials if not one.meets]
    assert all("on prompts that no candidate saw" in one.why for one in losers)
    assert tuner.notes == ["accuracy is that of 2 of 8 prompts; 2 others judge the winner, and the rest calibrate"]


@pytest.mark.slow
def test_candidates_are_judged_raced_and_the_winner_is_written(tmp_path):
    request = {"backends": [NBITS], "threads": (1, 2), "journal": tmp_path / "journal"}
    outcome = tuned(output=tmp_path / "out", **request)
    assert [one.name for one in outcome.trials] == ["host @1", "host @2", f"{NBITS} @1", f"{NBITS} @2"]
    assert all(len(one.turns) >= 3 and one.meets for one in outcome.trials)
    assert outcome.trials[0].kl == pytest.approx(0, abs=1e-6)
    assert outcome.trials[2].kl > 1e-7
    outcome.save(tmp_path / "out")
    config = json.loads((tmp_path / "out" / "genai_config.json").read_text())
    assert config["model"]["decoder"]["session_options"]["intra_op_num_threads"] == outcome.winner.threads
    Generation(chain_of(read_folder(tmp_path / "out")), Prompt(np.array([3, 4]), "prompt")).feed(np.array([3, 4]))
    # What was compiled is not compiled again, and another goal judges it anew.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "journal" / "results").rglob("model.onnx")}
    again = tuned(**{**request, "max_kl": 1e-7, "threads": (1,), "measure": "throughput"})
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "journal" / "results").rglob("model.onnx")}
    assert [one.meets for one in again.trials] == [True, False]
    assert "--max-kl 1e-07 is asked for" in again.trials[1].why
    assert "of 8 streams" in again.lines()[0]


@pytest.mark.slow
def test_a_candidate_that_fails_costs_itself_alone(tmp_path):
    outcome = tuned(backends=["tensorrt"])
    assert outcome.winner.spec == "host"
    assert outcome.trials[1].why or outcome.trials[1].meets


@pytest.mark.slow
def test_a_rise_of_perplexity_is_a_goal():
    found = tuned(backends=["cpu-int8:weights=int2,kernel=nbits"], max_kl=None, max_perplexity_rise="0.01%")
    host, two_bits = found.trials
    assert host.meets and host.rise == pytest.approx(0, abs=1e-6)
    assert two_bits.rise is not None and two_bits.rise != 0
    assert two_bits.meets == (two_bits.rise <= 1e-4)
    assert two_bits.meets or "--max-perplexity-rise 0.01% is asked for" in two_bits.why
    assert found.as_dict()["candidates"][1]["perplexity_rise"] == two_bits.rise
