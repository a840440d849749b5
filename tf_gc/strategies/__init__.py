"""Distribution strategies that compress gradients."""

from tf_gc.strategies.all_reduce_gradients import all_reduce_gradients
from tf_gc.strategies.compressed_all_reduce import CompressedAllReduce
from tf_gc.strategies.mirrored_strategy import CompressedMirroredStrategy
from tf_gc.strategies.multi_worker_strategy import CompressedMultiWorkerMirroredStrategy

__all__ = [
    "CompressedAllReduce",
    "CompressedMirroredStrategy",
    "CompressedMultiWorkerMirroredStrategy",
    "all_reduce_gradients",
]
