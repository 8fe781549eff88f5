"""The backend `toy-npu`, written as a class: products and activations in float32, fused in pairs."""

from dovetail.plugin import Backend, DovetailError, Refusal, Verdict

OPERATORS = ("Conv", "Gemm", "Relu", "Clip", "Tanh", "Add", "Mul")


class ToyNpu(Backend):
    """Takes what its few kernels compute."""

    name, summary, device = "toy-npu", "Toy NPU, float32", "npu"
    low, high, accumulate = "float32", "float32", None
    opset = (13, 22)
    strategy, regions, engines = "autocast", "pairs", ("onnxruntime-cpu",)
    facts = ()
    border_types = ("float32",)
    source = "ToyNpu"

    def __init__(self, options):
        self.chosen = {"activations": "yes", **options}
        if unknown := sorted(options.keys() - {"activations"}):
            raise DovetailError(f"toy-npu has no option '{unknown[0]}'", "its option: activations=yes or no")
        self._operators = OPERATORS if self.chosen["activations"] == "yes" else OPERATORS[:2]

    def takes(self, domain, op_type):
        return not domain and op_type in self._operators

    lists = takes

    def judge(self, opsets, facts):
        def verdict(node, region=None):
            if self.takes(node.domain, node.op_type):
                return Verdict(True, policy="pass")
            return Verdict(False, (Refusal(f"it has no {node.op_type}", self.source),))

        return verdict
