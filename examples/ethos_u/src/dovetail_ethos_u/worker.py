"""What writes TensorFlow Lite, calls Vela, and runs reference kernels; it imports nothing of Dovetail."""

import csv
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np


def version():
    """Return the versions of the compiler and of the kernels."""
    return f"vela {metadata.version('ethos-u-vela')}, litert {metadata.version('ai-edge-litert')}"


def compile(model, npu, scales, inputs, outputs):
    """Compile a float model with the scales of its values for a kind of NPU."""
    import onnx

    network = Network(onnx.load_from_string(model).graph, scales)
    source = network.written(inputs, outputs)
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "net.tflite"
        file.write_bytes(source)
        yield "vela: compiling"
        words = [
            "-c",
            "from ethosu.vela.vela import main; main()",
            file,
            "--output-dir",
            name,
            "--accelerator-config",
            npu,
        ]
        done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError((done.stderr or done.stdout).strip()[-2000:])
        (summary,) = Path(name).glob("*summary*.csv")
        (row,) = csv.DictReader(summary.open())
        facts = {"cycles": int(float(row["cycles_total"])), "sram_kib": float(row["sram_memory_used"])}
        return {"program": (Path(name) / "net_vela.tflite").read_bytes(), "source": source, "facts": facts}


class Network:
    """A graph of ONNX in NCHW as one of TensorFlow Lite in NHWC, in int8."""

    def __init__(self, graph, scales):
        from ai_edge_litert import schema_py_generated as schema
        from onnx import helper, numpy_helper

        self.s, self.scales, self.operators, self.codes = schema, scales, [], []
        self.tensors, self.buffers, self.index = [], [schema.BufferT()], {}
        self.weights = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        self.shapes = {
            value.name: [one.dim_value for one in value.type.tensor_type.shape.dim]
            for value in (*graph.input, *graph.value_info, *graph.output)
        }
        writers = {
            "Add": self._add,
            "Conv": self._conv,
            "Gemm": self._gemm,
            "MaxPool": self._maxpool,
            "Relu": self._relu,
        }
        # A Relu behind a value without a scale is a part of the node before it.
        relus = {node.input[0]: node for node in graph.node if node.op_type == "Relu" and node.input[0] not in scales}
        for node in graph.node:
            if node.input[0] not in relus:
                last = relus.get(node.output[0], node)
                attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
                writers[node.op_type](node, attributes, last.output[0], int(last is not node))

    def _conv(self, node, attributes, output, relu):
        data, weight, *bias = node.input
        pads = attributes.get("pads", [0] * 4)
        values = [self._padded(data, pads) if any(pads) else data]
        if depthwise := attributes.get("group", 1) > 1:
            options, order, axis = self.s.DepthwiseConv2DOptionsT(), (1, 2, 3, 0), 3
            options.depthMultiplier = 1
        else:
            options, order, axis = self.s.Conv2DOptionsT(), (0, 2, 3, 1), 0
        self._strided(options, attributes, relu).dilationHFactor = options.dilationWFactor = 1
        values += [self._weight(weight, order, axis), self._bias(bias, data, weight, self.weights[weight].shape[0])]
        self._operator("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", values, output, options)

    def _gemm(self, node, attributes, output, relu):
        data, weight, *bias = node.input
        options = self.s.FullyConnectedOptionsT()
        options.fusedActivationFunction = relu
        order = (0, 1) if attributes.get("transB") else (1, 0)
        rows = self.weights[weight].shape[order[0]]
        values = [data, self._weight(weight, order, 0), self._bias(bias, data, weight, rows)]
        self._operator("FULLY_CONNECTED", values, output, options)

    def _add(self, node, attributes, output, relu):
        self._operator("ADD", node.input, output, self.s.AddOptionsT())

    def _relu(self, node, attributes, output, relu):
        self._operator("RELU", node.input, output)

    def _maxpool(self, node, attributes, output, relu):
        options = self._strided(self.s.Pool2DOptionsT(), attributes, relu)
        options.filterHeight, options.filterWidth = attributes["kernel_shape"]
        self._operator("MAX_POOL_2D", node.input, output, options)

    def written(self, inputs, outputs):
        """Return the file; inputs and outputs of four axes are turned, because the NPU reads NHWC alone."""
        import flatbuffers

        s, before = self.s, self.operators
        self.operators = []
        entering = [self._entering(name) if len(self.shapes[name]) == 4 else self._tensor(name) for name in inputs]
        first, self.operators = self.operators, before
        leaving = [self._leaving(name) if len(self.shapes[name]) == 4 else self._tensor(name) for name in outputs]
        graph = s.SubGraphT()
        graph.tensors, graph.operators = self.tensors, first + self.operators
        graph.inputs, graph.outputs = entering, leaving
        model = s.ModelT()
        model.version, model.subgraphs, model.buffers, model.operatorCodes = 3, [graph], self.buffers, self.codes
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _entering(self, name):
        place = self._new(f"{name}_nchw", self.shapes[name], "INT8", *self.scales[name])
        self._operator("TRANSPOSE", [place, self._constant(np.int32([0, 2, 3, 1]))], name)
        return place

    def _leaving(self, name):
        place = self._new(f"{name}_nchw", self.shapes[name], "INT8", *self.scales[name])
        self._operator("TRANSPOSE", [name, self._constant(np.int32([0, 3, 1, 2]))], place)
        return place

    def _padded(self, data, pads):
        n, c, h, w = self.shapes[data]
        top, left, bottom, right = pads
        place = self._new(f"{data}_padded", [n, h + top + bottom, w + left + right, c], "INT8", *self.scales[data])
        around = np.int32([[0, 0], [top, bottom], [left, right], [0, 0]])
        self._operator("PAD", [data, self._constant(around)], place, self.s.PadOptionsT())
        return place

    def _strided(self, options, attributes, relu):
        options.strideH, options.strideW = attributes.get("strides", [1, 1])
        options.padding, options.fusedActivationFunction = self.s.Padding.VALID, relu
        return options

    def _weight(self, name, order, axis):
        scale, zero = self.scales[name]
        values = self.weights[name].transpose(order)
        across = np.float32(scale).reshape([-1 if at == axis else 1 for at in range(values.ndim)])
        integers = np.clip(np.round(values / across), -127, 127).astype(np.int8)
        return self._new(name, values.shape, "INT8", scale, [0] * len(scale), integers, axis)

    def _bias(self, names, data, weight, rows):
        scale = np.float32(self.scales[data][0]) * np.float32(self.scales[weight][0])
        values = self.weights[names[0]] if names else np.float32(0)
        integers = np.round(np.broadcast_to(values, rows) / scale).astype(np.int32)
        return self._new(f"{weight}_bias", integers.shape, "INT32", scale.tolist(), [0] * len(scale), integers)

    def _constant(self, values):
        return self._new(f"constant_{len(self.tensors)}", values.shape, "INT32", values=values)

    def _tensor(self, name):
        """Return the index of a value in int8, which is made when it is first named."""
        if isinstance(name, int):
            return name
        if name not in self.index:
            shape = self.shapes[name]
            shape = [shape[0], *shape[2:], shape[1]] if len(shape) == 4 else shape
            self.index[name] = self._new(name, shape, "INT8", *self.scales[name])
        return self.index[name]

    def _new(self, name, shape, kind, scale=None, zero=None, values=None, axis=0):
        tensor, buffer = self.s.TensorT(), self.s.BufferT()
        tensor.name, tensor.shape, tensor.type = name, list(map(int, shape)), getattr(self.s.TensorType, kind)
        if scale is not None:
            tensor.quantization = self.s.QuantizationParametersT()
            tensor.quantization.scale, tensor.quantization.zeroPoint = list(map(float, scale)), list(map(int, zero))
            tensor.quantization.quantizedDimension = axis
        if values is not None:
            buffer.data = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
        tensor.buffer = len(self.buffers)
        self.buffers.append(buffer)
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def _operator(self, name, inputs, output, options=None):
        operator, code = self.s.OperatorT(), self.s.OperatorCodeT()
        code.builtinCode = getattr(self.s.BuiltinOperator, name)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 3
        operator.opcodeIndex = len(self.codes)
        self.codes.append(code)
        operator.inputs, operator.outputs = [self._tensor(each) for each in inputs], [self._tensor(output)]
        if options is not None:
            operator.builtinOptions = options
            operator.builtinOptionsType = getattr(self.s.BuiltinOptions, type(options).__name__[:-1])
        self.operators.append(operator)


def load(program):
    """Load a network, and return its interpreter for `run`."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(model_content=program, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    return interpreter


def run(interpreter, inputs):
    """Run a network on inputs in its order, and return its outputs."""
    for about, array in zip(interpreter.get_input_details(), inputs):
        interpreter.set_tensor(about["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(about["index"]).copy() for about in interpreter.get_output_details()]
