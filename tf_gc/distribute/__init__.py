"""Distribution strategies that compress gradients."""

from tf_gc.distribute.all_reduce_gradients import all_reduce_gradients
from tf_gc.distribute.compressed_all_reduce import CompressedAllReduce
from tf_gc.distribute.mirrored_strategy import CompressedMirroredStrategy
from tf_gc.distribute.multi_worker_strategy import CompressedMultiWorkerMirroredStrategy

__all__ = [
    "CompressedAllReduce",
    "CompressedMirroredStrategy",
    "CompressedMultiWorkerMirroredStrategy",
    "all_reduce_gradients",
]
