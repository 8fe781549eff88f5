"""Toy networks: one line per node, `NAME = OPERATOR INPUT...`, beside `input NAME EXTENT...` and `output NAME...`."""

from dovetail.plugin import DovetailError, Frontend

OPERATORS = {"relu": 1, "tanh": 1, "softmax": 1, "add": 2, "mul": 2, "concat": 2}


class ToyFrontend(Frontend):
    """Reads `.toy` files."""

    suffixes = (".toy",)

    def read(self, path):
        from onnx import TensorProto, helper  # imported when a file is read, not when the suffix is asked for

        inputs, outputs, nodes, known = [], [], [], set()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            if words[0] == "input":
                shape = [int(word) for word in words[2:]]
                inputs.append(helper.make_tensor_value_info(words[1], TensorProto.FLOAT, shape))
                known.add(words[1])
            elif words[0] == "output":
                outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in words[1:]]
            else:
                name, _, operator, *reads = words
                if len(reads) != OPERATORS.get(operator):
                    raise DovetailError(f"{path}:{number}: no operator '{operator}' with {len(reads)} inputs")
                if missing := [read for read in reads if read not in known]:
                    raise DovetailError(f"{path}:{number}: nothing before this line computes '{missing[0]}'")
                more = {"axis": -1} if operator == "concat" else {}
                nodes.append(helper.make_node(operator.capitalize(), reads, [name], name=f"line_{number}", **more))
                known.add(name)
        graph = helper.make_graph(nodes, path.stem, inputs, outputs)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
