"""Refining quantized weights: changes of weights and biases that make a quantized model lose less.

`steps` says which refinements a request asks for, and `option` is how it does. `equalize` and `smooth` scale channels
before calibration; `rounding` and `bias` change weights and biases after it, block by block (`walk`, `blocks`). What
follows from data is kept in a file beside the plan (`saved`), so that a replay needs no data.
"""
