"""Backend for int8 on CPUs through OpenVINO and ONNX Runtime."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the backend `cpu-int8`, its engine, passes, strategies, observers and facts."""
    registry.pass_("tie-embeddings", "dovetail_cpu_int8.tied_embeddings:TieEmbeddings", for_backend="cpu-int8")
    registry.pass_("reserve-scales", "dovetail_cpu_int8.reserved_scales:ReserveScales", for_backend="cpu-int8")
    registry.pass_("drop-scales", "dovetail_cpu_int8.reserved_scales:DropScales", for_backend="cpu-int8")
    registry.pass_("integer-biases", "dovetail_cpu_int8.integer_biases:IntegerBiases", for_backend="cpu-int8")
    registry.pass_(
        "dynamic-quantization", "dovetail_cpu_int8.dynamic_quantization:DynamicQuantization", for_backend="cpu-int8"
    )
    registry.pass_("integer-gathers", "dovetail_cpu_int8.integer_gathers:IntegerGathers", for_backend="cpu-int8")
    registry.pass_("matmul-nbits", "dovetail_cpu_int8.matmul_nbits:MatMulNBits", for_backend="cpu-int8")
    registry.pass_("merge-products", "dovetail_cpu_int8.merged_products:MergeProducts", for_backend="cpu-int8")
    registry.pass_("byte-products", "dovetail_cpu_int8.byte_products:ByteProducts", for_backend="cpu-int8")
    registry.pass_("quantized-experts", "dovetail_cpu_int8.quantized_experts:QuantizedExperts", for_backend="cpu-int8")
    registry.pass_("half-scales", "dovetail_cpu_int8.half_scales:HalfScales", for_backend="cpu-int8")
    registry.pass_("keep-floats", "dovetail_cpu_int8.accuracy_level:KeepFloats", for_backend="cpu-int8")
    registry.pass_("accuracy-level", "dovetail_cpu_int8.accuracy_level:AccuracyLevel", for_backend="cpu-int8")
    registry.pass_("cache-ranges", "dovetail_cpu_int8.int8_caches:CacheRanges", for_backend="cpu-int8")
    registry.pass_("int8-caches", "dovetail_cpu_int8.int8_caches:Int8Caches", for_backend="cpu-int8")
    registry.engine("openvino-cpu-int8", "dovetail_cpu_int8.engine:OpenVinoCpuInt8")
    registry.session_start("openvino-cpu-int8", "dovetail_cpu_bf16:OpenVinoStart")
    registry.strategy("quantized-inputs", "dovetail_cpu_int8.quantized_inputs:QuantizedInputs")
    registry.strategy("weights-alone", "dovetail_cpu_int8.weight_formats:WeightsAlone")
    registry.option("max-size", "dovetail_cpu_int8.max_size:MAX_SIZE")
    registry.observer("signed-symmetric", "dovetail_cpu_int8.observers:SignedSymmetric")
    registry.observer("reduced-range", "dovetail_cpu_int8.observers:ReducedRange")
    registry.fact("dequantizes", "dovetail_cpu_int8.facts:dequantizes")
    registry.fact("turns_values", "dovetail_cpu_int8.facts:turns_values")
    registry.backend("cpu-int8", "dovetail_cpu_int8:cpu_int8.yaml")
    registry.conformance("cpu-int8", "dovetail_cpu_int8:conformance.yaml")
