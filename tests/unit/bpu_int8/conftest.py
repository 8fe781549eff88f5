"""Plans of small models for `bpu-int8`."""

import dovetail
import pytest
from dovetail_onnx.opening import open_text


@pytest.fixture
def placed():
    """The nodes on the BPU, for a graph in ONNX text; `placed.why` has rule, reason and source of the others."""

    def make(text, march="bernoulli2", opset=21, **request):
        model = open_text(f'<ir_version: 10, opset_import: ["": {opset}]>\ng {text}', "m")
        plan = dovetail.plan(model, f"bpu-int8:march={march}", **request)
        make.why = {
            remark.node: (remark.rule, f"{remark.why} [{remark.source}]")
            for remark in plan.remarks
            if remark.kind in ("missed", "failed")
        }
        return " ".join(node.name for node in plan.nodes if node.backend == "bpu-int8")

    return make
