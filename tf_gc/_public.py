"""The public names, all of them; `tf_gc` takes them from here when they are first used."""

from tf_gc import keras, ops, params
from tf_gc.cluster.slurm import SlurmClusterResolver
from tf_gc.parameter_server import (
    CompressedParameterServerStrategy,
    push_gradients,
    run_server,
)
from tf_gc.params import (
    Auto,
    ByVariable,
    Cast,
    LowRank,
    NoCompression,
    OneBit,
    Quantized,
    TwoBit,
)
from tf_gc.strategies import (
    CompressedAllReduce,
    CompressedMirroredStrategy,
    CompressedMultiWorkerMirroredStrategy,
    all_reduce_gradients,
)

__all__ = [
    "Auto",
    "ByVariable",
    "Cast",
    "CompressedAllReduce",
    "CompressedMirroredStrategy",
    "CompressedMultiWorkerMirroredStrategy",
    "CompressedParameterServerStrategy",
    "LowRank",
    "NoCompression",
    "OneBit",
    "Quantized",
    "SlurmClusterResolver",
    "TwoBit",
    "all_reduce_gradients",
    "keras",
    "ops",
    "params",
    "push_gradients",
    "run_server",
]
