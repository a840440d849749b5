"""Gradient compression for distributed Keras and TensorFlow training."""

from tf_gc import _requirements, keras, ops  # noqa: F401  (what is missing is said first)
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

__version__ = "0.1.0"

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
    "push_gradients",
    "run_server",
]
