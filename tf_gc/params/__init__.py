"""What a user says about compression: the values of `compression_params`."""

from tf_gc.params.auto import Auto
from tf_gc.params.by_variable import ByVariable
from tf_gc.params.cast import Cast
from tf_gc.params.compression import CompressionParams, Gradient, LeftAlone
from tf_gc.params.from_params import from_params
from tf_gc.params.low_rank import LowRank
from tf_gc.params.no_compression import NoCompression
from tf_gc.params.one_bit import OneBit
from tf_gc.params.quantized import Quantized
from tf_gc.params.two_bit import TwoBit

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
