"""`tune --device COMMAND`: candidates run on a board, and its runner's times decide.

A script plays the board. Results are real, kept from call to call; times are made up by the engine of the export.
"""

import shlex
import sys

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError
from dovetail.plugin import EngineError
from dovetail_tune import last_race, local_pool, worker

NET = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 64] x) => (float[N, 64] y) { p = MatMul (x, w)  y = Tanh (p) }"""
DATA = {"x": np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)}
BACKEND = "cpu-bf16:policies=lean"  # one candidate, on OpenVINO

BOARD = """
folder=$1 inputs=$2 outputs=$3 repeat=$4
engine=onnxruntime
grep -q '"openvino"' $folder/deploy.json && engine=openvino
before
key=$kept/$( (grep '"bytes"' $folder/deploy.json; cat $inputs/*) | cksum | tr -d ' ')
[ -d $key ] || python $folder/run.py $inputs $key || exit 1
mkdir -p $outputs && cp $key/* $outputs
seconds=0.002
[ $engine = openvino ] && seconds=0.001
[ $repeat = 0 ] || echo '{"format": "dovetail-times", "version": 1, "seconds": ['$seconds']}' > $outputs/times.json
after
"""


class Worker:
    """Does jobs in this process, which has imported the engines."""

    def __init__(self, blocked=()):
        self.jobs = worker.begin(blocked)

    def close(self):
        pass

    def ask(self, job, timeout=0.0):
        try:
            return getattr(self.jobs, job["job"])(job)
        except DovetailError as error:
            raise EngineError(error.message, error.hint) from error


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(last_race, "_MEASUREMENTS", 1)
    monkeypatch.setattr(local_pool, "Worker", Worker)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """What the board computed before: it takes seconds to start its engines."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def board(tmp_path, kept):
    """Return what makes the command of a board that does something before and after it computes."""

    def command(before="true", after="true", place="{repeat}"):
        head = f'kept={kept}\npython() {{ {sys.executable} "$@"; }}\n'
        head += f"before() {{ {before}\n}}\nafter() {{ {after}\n}}\n"
        (tmp_path / "board.sh").write_text(head + BOARD)
        return f"sh {shlex.quote(str(tmp_path / 'board.sh'))} {{folder}} {{inputs}} {{outputs}} {place}"

    return command


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """A model whose samples run together, so that one call of the board compares them."""
    proto = onnx.parser.parse_model(NET)
    weights = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32) / 8
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(proto, path)
    return path


@pytest.fixture
def tuned_on(net):
    return lambda device, **more: dovetail.tune(net, BACKEND, data=DATA, min_snr=10, device=device, **more)


def test_the_times_of_the_board_decide(net, board, tuned_on, tmp_path):
    tuned = tuned_on(board(), journal=tmp_path / "journal")
    assert tuned.winner.engines == ("openvino-cpu",)
    assert (tuned.winner.seconds, tuned.winner.against.median) == (0.001, 0.5)
    assert "times are those that the runner on the device reports" in tuned.notes
    here = dovetail.verify(net, tuned.compiled, DATA)
    assert tuned.winner.snr_db == pytest.approx(here.outputs[0].snr_db, abs=12)  # on other samples
    tuned.save(tmp_path / "out")
    kept = [path for place in ("out", "journal") for path in (tmp_path / place).rglob("*") if path.is_file()]
    assert kept and not any(b"board.sh" in path.read_bytes() for path in kept)


@pytest.mark.parametrize(
    ("does", "message"),
    [
        pytest.param({"before": "[ $engine = openvino ] && echo no memory && exit 3"}, "ended with 3: no memory",
                     id="fails"),
        pytest.param({"before": "[ $engine = openvino ] && echo loading && sleep 60"},
                     "no answer within 2 s, and was ended; it last said: loading", id="hangs", marks=pytest.mark.slow),
        pytest.param({"after": "[ $engine = openvino ] && echo '{' > $outputs/tensors.json; true"},
                     "gives no such outputs", id="garbage", marks=pytest.mark.slow),
        pytest.param({"after": "[ $engine = openvino ] && sed -i 's/64/32/' $outputs/tensors.json; true"},
                     "gives no such outputs", id="another shape", marks=pytest.mark.slow),
        pytest.param({"after": "[ $engine = openvino ] && rm -f $outputs/times.json; true"},
                     "the runner reports no times: it writes no times.json", id="no times", marks=pytest.mark.slow),
        pytest.param({"after": "[ $engine = openvino ] && echo '[1]' > $outputs/times.json; true"},
                     "times.json does not list the seconds of runs", id="other times", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_what_goes_wrong_on_the_board_costs_its_trial(board, tuned_on, does, message):
    tuned = tuned_on(board(**does), device_timeout=2 if "no answer" in message else 0)
    rows = {entry.candidate.name: entry.remark for entry in tuned.entries}
    assert message in rows[BACKEND] and rows[BACKEND].startswith("left out: ") and "\n" not in rows[BACKEND]
    assert tuned.winner.candidate.name == "host" and not tuned.not_tried


def test_a_board_that_goes_away_ends_the_tuning_with_what_is_known(board, tuned_on, tmp_path):
    """It goes while the first candidate runs; with the same journal, another start tries all."""
    gone = tmp_path / "gone"
    away = f"[ $engine = openvino ] && touch {gone}; [ -e {gone} ] && echo no route && exit 255; true"
    tuned = tuned_on(board(away), journal=tmp_path / "journal")
    assert tuned.winner.candidate.name == "host"
    assert set(tuned.not_tried) == {BACKEND, f"{BACKEND} high"}
    (said,) = (text for text in tuned.notes if "does not run the host's result any more" in text)
    assert "no route" in said
    assert "the device was gone before the last race, so that the quick comparisons decide" in tuned.notes

    gone.unlink()
    back = tuned_on(board(), journal=tmp_path / "journal")
    assert not back.not_tried and back.winner.candidate.name != "host"


def test_a_board_that_never_answers_is_one_error(board, tuned_on):
    with pytest.raises(
        DovetailError, match="the model does not run on the device: .* ended with 255: no route to host"
    ):
        tuned_on(board("echo no route to host; exit 255"))
    with pytest.raises(DovetailError, match="the model does not run on the device: the runner reports no times"):
        tuned_on(board(after="rm -f $outputs/times.json"))


def test_requests_that_make_no_sense(net, board, tuned_on, capsys):
    with pytest.raises(UsageError, match="no place for the number of runs"):
        tuned_on(board(place=""))
    with pytest.raises(UsageError, match="no place for the number of threads"):
        tuned_on(board(), threads=(1, 2))
    with pytest.raises(UsageError, match="a device is timed by one call at a time"):
        tuned_on(board(), measure="throughput")
    command = ["tune", str(net), "--data", "x.npz", "--min-snr", "30"]
    assert main([*command, "--device", board(), "--cluster", "tcp://x:1"]) == 2
    assert "--device says what runs the result" in capsys.readouterr().err
    assert main([*command, "--device-timeout", "3"]) == 2
    assert "--device-timeout is for --device" in capsys.readouterr().err
