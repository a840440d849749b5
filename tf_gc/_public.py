"""The public names, all of them; `tf_gc` takes them from here when they are first used."""

# mypy: implicit-reexport
# ruff: noqa: F401, F403

from tf_gc import keras, ops, params
from tf_gc.cluster.slurm import SlurmClusterResolver
from tf_gc.parameter_server.server import run_server
from tf_gc.parameter_server.strategy import CompressedParameterServerStrategy, push_gradients
from tf_gc.params import *
from tf_gc.strategies.compressed_all_reduce import CompressedAllReduce
from tf_gc.strategies.loops import all_reduce_gradients
from tf_gc.strategies.mirrored_strategy import CompressedMirroredStrategy
from tf_gc.strategies.multi_worker_strategy import CompressedMultiWorkerMirroredStrategy
