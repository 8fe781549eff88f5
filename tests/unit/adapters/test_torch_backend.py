"""`torch.compile(backend="dovetail")`: graphs run in Dovetail, or in torch with the reason as a warning."""

import warnings
from importlib.metadata import entry_points

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from dovetail_adapters.torch_backend import DovetailWarning, dovetail  # noqa: E402
from dovetail_adapters.torch_export import to_array, to_tensor  # noqa: E402

X = torch.linspace(-1, 1, 12).reshape(2, 6)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", DovetailWarning)
        yield


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense, self.norm = torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4)

    def forward(self, x):
        y = torch.relu(self.norm(self.dense(x)))
        return y, None, y.sum(1)


def net():
    torch.manual_seed(1)
    return Net().eval()


def test_a_model_runs_with_its_weights_as_constants():
    eager, seen = net(), []

    def backend(graph, examples, **options):
        seen.append(dovetail(graph, examples, **options))
        return seen[-1]

    fast = torch.compile(eager, backend=backend)
    for got, wanted in zip(fast(X), eager(X), strict=True):
        assert got is wanted is None or torch.allclose(got, wanted, atol=1e-5)
    (prepared,) = seen[0]._sessions.values()
    operators = [node.op_type for node in prepared._session.compiled.model.graph]
    assert "BatchNormalization" not in operators and len(prepared._inputs) == 1


def test_options_reach_the_compilation():
    eager = net()
    got = torch.compile(eager, backend=dovetail, options={"backend": "cpu-bf16"})(X)[0]
    wanted = eager(X)[0]
    assert torch.allclose(got, wanted, atol=2e-2)


def test_other_shapes_and_written_weights_are_compiled_again():
    eager = net()
    fast = torch.compile(eager, backend=dovetail, dynamic=True)
    assert torch.allclose(fast(X[:1])[0], eager(X[:1])[0], atol=1e-5)
    assert torch.allclose(fast(torch.cat([X, X]))[0], eager(torch.cat([X, X]))[0], atol=1e-5)
    eager.dense.weight.mul_(2.0)
    assert torch.allclose(fast(X)[0], eager(X)[0], atol=1e-5)
    eager.dense.weight = torch.nn.Parameter(torch.ones(4, 6))
    assert torch.allclose(fast(X)[0], eager(X)[0], atol=1e-5)


@pytest.mark.parametrize(
    "function, options, why",
    [
        (torch.linalg.eigvals, {}, "cannot export it to ONNX"),
        (lambda x: x + 1, {"backend": "absent"}, "absent"),
        (lambda x: x + 1, {"fast": True}, "fast"),
    ],
    ids=["no form in ONNX", "no such backend", "no such option"],
)
def test_a_graph_that_cannot_be_compiled_runs_in_torch_with_a_warning(function, options, why):
    square = torch.eye(3)
    fast = torch.compile(function, backend=dovetail, options=options)
    with pytest.warns(DovetailWarning, match=why):
        assert torch.equal(fast(square), function(square))
    assert torch.equal(fast(square), function(square))  # said once


def test_gradients_are_left_to_torch():
    eager = net()
    with torch.enable_grad(), pytest.warns(DovetailWarning, match="gradients are recorded"):
        torch.compile(eager, backend=dovetail)(X)[0].sum().backward()
    assert eager.dense.weight.grad is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_tensors_survive_the_way_to_arrays_and_back(dtype):
    tensor = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype).t()
    assert torch.equal(to_tensor(to_array(tensor)), tensor)
    assert to_tensor(np.float32(3)).shape == ()


def test_torch_finds_the_backend_by_its_name():
    (point,) = entry_points(group="torch_dynamo_backends", name="dovetail")
    assert point.load() is dovetail
