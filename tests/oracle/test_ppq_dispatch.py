"""What PPQ's dispatchers decided for small graphs, and what the strategies for integers decide.

Recorded is, node by node, whether it is in int8, in float32, or sent to the shapes and indices (SOI). Lower case marks
what is known to be a defect of PPQ.
"""

import os
import random
import sys
from pathlib import Path

import pytest
import yaml
from dovetail.plugin import load_plugins

from .ppq_backends import GRAPHS, PLATFORMS, STRATEGIES, backend_of, backend_texts, decisions, prepared, recorded

DIFFERENCES = yaml.safe_load((Path(__file__).parent / "ppq_differences.yaml").read_text(encoding="utf-8"))
LISTED = {
    (strategy, name) for entry in DIFFERENCES for strategy, names in entry["nodes"].items() for name in names
}  # fmt: skip
LABELS = {"I": "INT8", "F": "FP32", "S": "SOI"}
# Their label is that of their producer in some dispatchers, but they are in float32 in any case.
INDEX_SOURCES = {"Shape", "TopK", "NonMaxSuppression"}


def chosen():
    """The graphs with a name, and some of those that were drawn by chance; all of them with DOVETAIL_SLOW=1."""
    drawn = sorted(name for name in GRAPHS if name.startswith("rand_"))
    if os.environ.get("DOVETAIL_SLOW") != "1":
        listed = {name.split("/")[0] for _, name in LISTED}
        drawn = random.Random(7).sample(drawn, 8) + random.Random(8).sample(sorted(listed & set(drawn)), 4)
    return sorted({*(name for name in GRAPHS if not name.startswith("rand_")), *drawn})


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    root = tmp_path_factory.mktemp("ppq")
    package = root / "dovetail_backends_like_ppq"
    package.mkdir()
    (package / "__init__.py").write_text("")
    found = load_plugins()
    sys.path.insert(0, str(root))
    for platform, text in zip(PLATFORMS, backend_texts()):
        (package / f"{platform}.backend.yaml").write_text(text)
        found.registry.backend(backend_of(platform), f"{package.name}:{platform}.backend.yaml")
    yield found
    sys.path.remove(str(root))


def compared(name, plugins):
    """`(strategy, node, theirs, ours)` of all nodes outside known defects, on both platforms."""
    graph, model = GRAPHS[name], prepared(name, plugins)
    operators = {node.name: node.op_type for node in recorded(name).graph.node}
    operators |= {node: new for node, (_, new) in graph.get("changed", {}).get("retyped", {}).items()}
    here = {node.name: node.op_type for node in model.graph}
    for platform in PLATFORMS:
        for dispatcher, strategy in STRATEGIES.items():
            letters = graph[platform][dispatcher]  # none where PPQ failed
            ours = decisions(model, platform, strategy, plugins)[0] if letters else {}
            for node, letter in zip(graph["nodes"], letters):
                # Our own preparation may write an operator in another way, such as the Softmax of opset 11.
                if letter in LABELS and here.get(node) == operators[node]:
                    theirs, mine = LABELS[letter], ours[node]
                    if theirs != "INT8" and (strategy == "all-in" or operators[node] in INDEX_SOURCES):
                        mine = theirs if mine != "INT8" else mine
                    yield strategy, node, theirs, mine


@pytest.mark.generated
@pytest.mark.parametrize("name", chosen())
def test_the_decisions_are_those_of_ppq(name, plugins):
    found = list(compared(name, plugins))
    assert found
    different = {
        (strategy, f"{name}/{node}"): (theirs, mine) for strategy, node, theirs, mine in found if theirs != mine
    }
    assert {key: labels for key, labels in different.items() if key not in LISTED} == {}
    listed = {(strategy, node) for strategy, node in LISTED if node.split("/")[0] == name}
    assert listed <= different.keys(), "listed, and no difference any more"


INT8 = {"INT8"}


@pytest.mark.parametrize(
    ("strategy", "name", "nodes", "labels"),
    [
        # One NonMaxSuppression sends the whole net to float32 there.
        ("perseus", "det_nms", ["conv1", "relu1", "conv2", "sig", "reshape", "tr_box", "slice_score"], INT8),
        ("perseus", "topk_head", ["conv1", "relu1", "conv2", "reshape"], INT8),
        # Where carries what it selects, not its condition.
        ("perseus", "attention_where", ["mm_q", "mm_k", "tr_k", "mm_qk"], INT8),
        ("perseus", "where_before_conv", ["mul", "conv1", "relu", "conv2"], INT8),
        # Activations are not sent to shapes because something reads their shape, or because they may be selected.
        ("aggressive", "const_of_shape", ["add"], INT8),
        ("aggressive", "det_nms", ["slice_score"], INT8),
        ("aggressive", "attention_where", ["div"], INT8),
        ("conservative", "rand_1003", ["n00_hardsigmoid", "n03_add"], {"FP32"}),
        # Integers are not quantized.
        ("all-in", "dyn_upsample", ["cat_sizes", "slice_hw", "slice_nc"], {"SOI"}),
        ("all-in", "shape_cone_int", ["plus", "cat1"], {"SOI"}),
        ("aggressive", "segmentation", ["palette", "flat", "head8", "cat_ids"], {"FP32"}),
        # A product is one even if nothing reads it.
        ("conservative", "lone_conv", ["conv"], INT8),
        ("aggressive", "lone_conv", ["conv"], INT8),
        ("conservative", "focus_pad", ["conv2"], INT8),
        # The order of nodes does not matter, and Shape follows the producer of its input.
        ("aggressive", "conv_bn_relu", ["conv0", "conv1", "conv2", "relu0", "clip1", "add"], INT8),
        ("aggressive", "no_computing", ["d_shape"], {"SOI"}),
    ],
)  # fmt: skip
def test_what_we_decide_where_ppq_is_wrong(strategy, name, nodes, labels, plugins):
    model = prepared(name, plugins)
    ours, _ = decisions(model, "TRT_INT8", strategy, plugins)
    assert {node: ours[node] for node in nodes if ours[node] not in labels} == {}
