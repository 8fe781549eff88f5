"""A plan beside a log of the vendor's tool."""

import json

import dovetail
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError

from .test_report import DATA, compiled
from .vendor_files import model_of

LOG = """2024-01-01 12:00:00,000 INFO Start to parse the yaml file
2024-01-01 12:00:01,000 file: common.py func: common line no: 1 The quantized model output:
=====================================================================================================
Node                 ON   Subgraph  Type                Cosine Similarity  Threshold   In/Out DataType
-----------------------------------------------------------------------------------------------------
HZ_PREPROCESS_FOR_x  BPU  id(0)     HzPreprocess        0.999950           127.000000  int8/int8
one                  BPU  id(0)     HzSQuantizedConv    0.999900           {ONE}       int8/int8
UNIT_CONV_FOR_mid    BPU  id(0)     HzSQuantizedConv    0.999800           99.0        int8/int8
pool                 BPU  id(0)     HzQuantizedMaxPool  0.999800           3.2         int8/int8
two                  BPU  id(0)     HzSQuantizedConv    0.999700           3.2         int8/int32
soft                 BPU  id(0)     HzSoftmax           0.999600           8.1         int8/int8
soft_reshape         CPU  --        Reshape             1.000000           --          float/float
three                BPU  id(1)     HzSQuantizedConv    0.999500           1.0         int8/int32
"""


@pytest.fixture(scope="module")
def result():
    return compiled(layers=False)


@pytest.fixture
def log(result, tmp_path):
    row = next(row for row in dovetail.hb_report(result).nodes if row.node == "one")
    path = tmp_path / "hb_mapper.log"
    path.write_text(LOG.replace("{ONE}", f"{1.03 * row.threshold:.6f}"))
    return path


def test_where_nodes_are_and_what_their_numbers_are_held_in(result, log):
    found = dovetail.hb_diff(result, log)
    assert (found.both, found.same) == (6, 5)
    (other,) = found.differences
    assert (other.node, other.here, other.there, other.type) == ("soft", "CPU", "BPU", "HzSoftmax")
    assert other.reason == "Softmax is quantized only where somebody asks for it"
    assert found.only_here == ["tail"] and found.only_there == ["soft_reshape"]
    assert found.subgraphs == (2, 2)
    assert found.near == 1 and "mid" in [name for name, *_ in found.farthest]


def test_which_nodes_share_a_scale_whatever_its_value(result, log):
    found = dovetail.hb_diff(result, log).scales
    assert (found.nodes, found.alike, found.scales) == (5, 5, (4, 4))  # a pool has the scale of what it reads
    log.write_text(log.read_text().replace("HzSQuantizedConv    0.999700           3.2", "HzSQuantizedConv 0.9 3.3"))
    found = dovetail.hb_diff(result, log).scales
    assert (found.nodes, found.alike, found.scales) == (5, 3, (4, 5))
    assert found.others == [("pool", ["two"], []), ("two", ["pool"], [])]


def test_only_the_last_table_counts(result, log):
    text = log.read_text()
    log.write_text(text.replace("three                BPU", "...ree               CPU") + text)
    assert dovetail.hb_diff(result, log).same == 5


BRANCHED = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w) [mid] m = Conv (a, v) [join] c = Concat <axis = 1> (a, m)
                [last] y = Conv (c, b) }"""
REQUANTIZED = """Node  ON   Subgraph  Type              Cosine Similarity  Threshold  In/Out DataType
one   BPU  id(0)     HzSQuantizedConv  0.999900           1.5        int8/int8
mid   BPU  id(0)     HzSQuantizedConv  0.999900           2.5        int8/int8
{VALUE}_calibrated_Requantize  BPU  id(0)  HzRequantize  --  --  int8/int8
join  BPU  id(0)     Concat            0.999900           2.5        int8/int8
last  BPU  id(0)     HzSQuantizedConv  0.999900           3.5        int8/int32
"""


@pytest.mark.parametrize(("value", "alike"), [("a", 1), ("...a", 1), ("m", 0)])
def test_values_that_a_concat_requantizes(value, alike, tmp_path):
    header = """(float[1,8,16,16] x) => (float[1,8,16,16] y) <float[8,8,3,3] w, float[8,8,1,1] v, float[8,16,1,1] b> """
    result = dovetail.compile(
        model_of(BRANCHED, header), "bpu-int8:march=bayes,observer=minmax", data=DATA, verify=False
    )
    (tmp_path / "hb.log").write_text(REQUANTIZED.replace("{VALUE}", value))
    found = dovetail.hb_diff(result, tmp_path / "hb.log").scales
    assert (found.nodes, found.alike, found.scales) == (4, 4, (3, 3))
    assert (found.requantized, found.requantized_alike) == ((1, 1), alike)


def test_names_that_the_tool_cut_are_whole_again(result, log):
    log.write_text(log.read_text().replace("three                BPU", "...ree               BPU"))
    assert dovetail.hb_diff(result, log).both == 6


def test_the_command_takes_folders_and_plans(result, log, tmp_path, capsys):
    result.save(tmp_path / "out")
    result.plan.save(tmp_path / "plan.yaml")
    for path in ("out", "plan.yaml"):
        assert main(["bpu", "diff", str(tmp_path / path), str(log)]) == 0
        said = capsys.readouterr().out
        assert said.startswith("6 nodes in both, 5 on the same device (83.3 %); 2 subgraphs on the BPU, 2 in the log")
        assert "soft" in said and "within 5 %" in said
    assert main(["bpu", "diff", str(tmp_path / "out"), str(log), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["same"] == 5


def test_a_log_without_a_table_is_refused(result, tmp_path):
    (tmp_path / "empty.log").write_text("INFO nothing\n")
    with pytest.raises(DovetailError, match="the log has no table of nodes"):
        dovetail.hb_diff(result, tmp_path / "empty.log")
