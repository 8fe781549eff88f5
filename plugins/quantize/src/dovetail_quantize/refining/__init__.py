"""Refinement of quantized weights: changes of weights and biases that reduce the quantization error.

`steps` defines the refinements and which of them a request selects. `equalize` and `smooth` scale channels before
calibration; `rounding` and `biases` change weights and biases after it, block by block (`layerwise`, `partition`,
`float_outputs`, `quantized_model`); `weighted_scales` weights the errors of weights in blocks by what they are
multiplied with. A search of parameters runs its candidates in one session (`shared_session`). Results that depend on
data are saved in a file next to the plan (`record`), so that a replay needs no data.
"""
