"""Gradient compression for distributed Keras and TensorFlow training."""

from tf_gc import ops
from tf_gc.codecs import NoCompression, OneBit, TwoBit
from tf_gc.distribute import (
    CompressedAllReduce,
    CompressedMirroredStrategy,
    CompressedMultiWorkerMirroredStrategy,
    all_reduce_gradients,
)

__all__ = [
    "CompressedAllReduce",
    "CompressedMirroredStrategy",
    "CompressedMultiWorkerMirroredStrategy",
    "NoCompression",
    "OneBit",
    "TwoBit",
    "all_reduce_gradients",
    "ops",
]
