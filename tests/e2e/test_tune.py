"""`dovetail tune`: a winner in an ordinary folder, a journal to resume from, and what is said of bad input.

Nothing here asserts who is fast: that is a matter of the machine.
"""

import functools
import json
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail_tune import last_race, mixing
from dovetail_tune.certificate import Optimum

DIGITS, DATA = "examples/digits/digits.onnx", "examples/digits/test.npz"


@pytest.fixture(autouse=True)
def short_races_and_profiles_of_their_own(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(last_race, "_MEASUREMENTS", 1)  # in this process; no test asserts who is fast
    monkeypatch.setenv("DOVETAIL_PROFILES", str(tmp_path_factory.mktemp("profiles")))


def tune(*words):
    command = [sys.executable, "-m", "dovetail.cli.main", "tune", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
def test_the_winner_is_an_ordinary_folder_that_meets_the_goal_and_a_second_run_goes_on_from_the_journal(tmp_path):
    words = (DIGITS, "--backend", "cpu-bf16:policies=lean", "--data", DATA, "--min-snr", 40)
    files = ("-o", tmp_path / "fast", "--plot", tmp_path / "front.svg")
    done = tune(*words, *files, "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    names = {candidate["name"]: candidate for candidate in outcome["candidates"]}
    assert {"host", "cpu-bf16:policies=lean", "cpu-bf16:policies=lean high"} <= set(names)
    assert outcome["winner"]["meets_goals"]
    assert names["host"]["snr_db"] == "inf" or names["host"]["snr_db"] > 100
    assert 40 < names["cpu-bf16:policies=lean"]["snr_db"] < 100
    # Without a backend that comes close to the host, there is nothing to mix, and a note says so.
    assert outcome["certificate"].startswith("within ") or any(
        note.startswith("nothing is mixed: no backend comes close") for note in outcome["notes"]
    )

    result = dovetail.load(tmp_path / "fast")
    assert dovetail.verify(DIGITS, result, DATA, min_snr=40).missed == []
    assert json.loads((tmp_path / "fast" / "tune.json").read_text())["winner"] == outcome["winner"]
    assert ET.parse(tmp_path / "front.svg").getroot().tag.endswith("svg")

    journal = tmp_path / "fast.tune" / "journal.jsonl"
    before = journal.read_text()
    again = tune(*words, *files, "--json")
    assert json.loads(again.stdout)["candidates"] == outcome["candidates"]
    assert journal.read_text() == before  # nothing was measured again

    journal.write_text(before.replace('"processor": "', '"processor": "another'))
    other = tune(*words, "--no-mix", "--journal", tmp_path / "fast.tune", "--budget", 60, "--json")
    assert "the journal's figures are of another processor, and are not used" in json.loads(other.stdout)["notes"]


@pytest.mark.slow
def test_a_goal_that_a_backend_misses_excludes_it_however_fast_it_is(tmp_path):
    tuned = dovetail.tune(DIGITS, "cpu-bf16:policies=lean", data=DATA, min_snr=100, mixed=False)
    entries = {entry.candidate.name: entry for entry in tuned.entries}
    low = entries["cpu-bf16:policies=lean"]
    assert not low.meets and "--min-snr 100 is asked for" in low.remark
    assert tuned.winner is not low and tuned.winner.snr_db >= 100


@pytest.mark.slow
def test_for_throughput_several_calls_run_at_the_same_time():
    tuned = dovetail.tune(
        DIGITS, "cpu-bf16:policies=lean", data=DATA, min_snr=30, measure="throughput", threads=(1,), mixed=False
    )
    assert tuned.winner.seconds > 0 and {e.candidate.threads for e in tuned.entries} == {1}


@pytest.mark.slow
def test_a_folder_of_models_makes_one_table(tmp_path):
    models = tmp_path / "models"
    models.mkdir()
    for name in ("one", "two"):
        (models / f"{name}.onnx").write_bytes(Path(DIGITS).read_bytes())
    np.savez(models / "one.npz", image=np.load(DATA)["image"][:8])
    done = tune(models, "--backend", "cpu-bf16:policies=lean", "--min-snr", 30, "--no-mix", "-o", tmp_path / "out")
    assert done.returncode == 1  # of the other there is no data
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "the fastest that does not miss the goal" in rows["one.onnx"] and "no data for it" in rows["two.onnx"]
    assert (tmp_path / "out" / "one" / "result.json").exists()


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ((DIGITS, "--min-snr", 30), "--min-snr 30 is a goal without data", "give --data"),
        ((DIGITS, "--data", DATA), "no goal says how accurate the result must be", "--min-snr 30"),
        ((DIGITS, "--data", DATA, "--min-snr", "loud"), "--min-snr loud is no goal", ""),
        ((DIGITS, "--data", DATA, "--min-snr", 30, "--budget", "soon"), "--budget soon: seconds above 0", ""),
        ((DIGITS, "--data", DATA, "--min-snr", 30, "--budget", 0.001), "before the host had run", "larger --budget"),
        ((DIGITS, "--data", DATA, "--min-snr", 30, "--threads", "two"), "numbers with commas", ""),
        ((DIGITS, "--data", DATA, "--min-snr", 30, "--backend", "bpu-int8"), "cannot run here", "dovetail backends"),
        (("nothing.onnx", "--data", DATA, "--min-snr", 30), "nothing.onnx: no such file", ""),
        ((DIGITS, "--data", "nothing.npz", "--min-snr", 30), "nothing.npz: no such file", ""),
    ],
)  # fmt: skip
def test_bad_input_is_one_message_with_the_way_out(words, message, hint):
    done = tune(*words)
    assert done.returncode in (1, 2)
    assert message in done.stderr and hint in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_mixed_plan_has_every_node_where_its_segment_says(monkeypatch, tmp_path):
    # Which plan is fast depends on the machine, so this one is given: the last segment on the host, the others not.
    monkeypatch.setattr(mixing, "_WORTH", float("inf"))
    monkeypatch.setattr(mixing, "_WITHIN", float("inf"))
    monkeypatch.setattr(mixing.Mixing, "doubt", lambda *_: "")
    monkeypatch.setattr(mixing, "optimum", lambda *_: Optimum(1.0, None, False))
    monkeypatch.setattr(mixing, "pareto_front", lambda problem: [(1,) * (len(problem.seconds) - 1) + (0,)])
    tuned = dovetail.tune(DIGITS, "cpu-bf16:policies=lean", data=DATA, min_snr=30, journal=tmp_path)
    (mixed,) = [entry for entry in tuned.entries if entry.candidate.is_mixed]
    assert mixed.meets and set(mixed.engines) == {"openvino-cpu", "onnxruntime-cpu"}
    pins = dict(pin.partition("/")[0].rsplit("=", 1) for pin in mixed.candidate.pins)
    assert pins["conv_1"] == "cpu-bf16" and pins["softmax_1"] == "host"
    saved = [path for path in (tmp_path / "candidates").iterdir() if path.name.startswith("mixed")]
    placed = {node.name: node.backend for node in dovetail.load(saved[0]).plan.nodes}
    assert {name: placed[name] for name in pins} == pins


@pytest.mark.slow
def test_an_interrupted_run_leaves_no_process_and_goes_on_where_it_was(tmp_path):
    words = (DIGITS, "--backend", "cpu-bf16:policies=lean", "--data", DATA, "--min-snr", 40, "--no-mix")
    command = [sys.executable, "-m", "dovetail.cli.main", "tune", *map(str, words), "-o", str(tmp_path / "out")]
    journal = tmp_path / "out.tune" / "journal.jsonl"
    # A parent in the background may ignore the signal, and pass that on.
    listens = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=listens) as running:
        while not journal.exists() and running.poll() is None:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
    assert running.returncode and "Traceback" not in said
    assert not (tmp_path / "out").exists()
    before = journal.read_text()
    assert '"host"' in before
    done = tune(*words, "-o", tmp_path / "out")
    assert done.returncode == 0 and (tmp_path / "out" / "result.json").exists()
    assert journal.read_text().startswith(before)
    assert journal.read_text().count('"kind": "candidate", "name": "host"') == 1
