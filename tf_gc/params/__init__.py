"""The params: values of `compression_params`."""

from tf_gc.gradients import Gradient, LeftAlone
from tf_gc.params.arguments import CompressionParams
from tf_gc.params.composed import Auto, ByVariable, from_params
from tf_gc.params.kinds import Cast, LowRank, NoCompression, OneBit, Quantized, TwoBit

__all__ = [
    "Auto",
    "ByVariable",
    "Cast",
    "CompressionParams",
    "Gradient",
    "LeftAlone",
    "LowRank",
    "NoCompression",
    "OneBit",
    "Quantized",
    "TwoBit",
    "from_params",
]
