# What backends and other plugins may use of `dovetail_quantize`, each name with its module.

from dovetail.plugin import Registry
from dovetail_quantize.blocks import (
    BlockTensor as BlockTensor,
    EncodedWeight as EncodedWeight,
    WEIGHT_PARTS as WEIGHT_PARTS,
)
from dovetail_quantize.channel_energies import energies_of as energies_of
from dovetail_quantize.integers import (
    dequantize_array as dequantize_array,
    integer_bounds as integer_bounds,
    parameters_of_range as parameters_of_range,
    quantize_array as quantize_array,
    scale_shape as scale_shape,
)
from dovetail_quantize.observers.clipping import Entropy as Entropy, MeanSquaredError as MeanSquaredError
from dovetail_quantize.observers.extremes import MinMax as MinMax
from dovetail_quantize.observers.least_squares import LeastSquares as LeastSquares
from dovetail_quantize.observing import Watcher as Watcher, observe as observe
from dovetail_quantize.parameters import compare_observers as compare_observers
from dovetail_quantize.refining.layers import Layer as Layer, float_tensor as float_tensor, layers_of as layers_of
from dovetail_quantize.refining.quantized_model import (
    quantized_model_of as quantized_model_of,
    share_quantized_model as share_quantized_model,
)
from dovetail_quantize.refining.record import RefinementRecord as RefinementRecord
from dovetail_quantize.refining.shared_session import SharedSession as SharedSession
from dovetail_quantize.refining.absorbers import absorber_of as absorber_of
from dovetail_quantize.border_samples import RegionSamples as RegionSamples, region_samples as region_samples
from dovetail_quantize.refining.steps import (
    REFINE_OPTION as REFINE_OPTION,
    SCALING as SCALING,
    SMOOTH as SMOOTH,
    steps_of as steps_of,
)

dovetail_api: int

def register(registry: Registry) -> None: ...
