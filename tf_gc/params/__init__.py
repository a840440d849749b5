"""The params: values of `compression_params`."""

# mypy: implicit-reexport
# ruff: noqa: F401

from tf_gc.gradients import Gradient, Uncompressed
from tf_gc.params.arguments import CompressionParams
from tf_gc.params.composed import KINDS, Auto, ByVariable, from_params
from tf_gc.params.kinds import Cast, LowRank, NoCompression, OneBit, Quantized, TwoBit
