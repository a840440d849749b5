"""The params: values of `compression_params`."""

from tf_gc.gradients import Gradient as Gradient
from tf_gc.gradients import LeftAlone as LeftAlone
from tf_gc.params.arguments import CompressionParams as CompressionParams
from tf_gc.params.composed import Auto as Auto
from tf_gc.params.composed import ByVariable as ByVariable
from tf_gc.params.composed import from_params as from_params
from tf_gc.params.kinds import Cast as Cast
from tf_gc.params.kinds import LowRank as LowRank
from tf_gc.params.kinds import NoCompression as NoCompression
from tf_gc.params.kinds import OneBit as OneBit
from tf_gc.params.kinds import Quantized as Quantized
from tf_gc.params.kinds import TwoBit as TwoBit
