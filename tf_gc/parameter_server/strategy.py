"""CompressedParameterServerStrategy: workers that push to, and pull from, parameter servers."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_gc import _compat, ops
from tf_gc.cluster.workers import Workers
from tf_gc.gradients import GradientValue
from tf_gc.keras.install import install
from tf_gc.keras.strategy import KerasStrategy
from tf_gc.ops.rows import EXACT
from tf_gc.parameter_server.push import Pushes
from tf_gc.parameter_server.server import JOBS
from tf_gc.parameter_server.server_variable import BFLOAT16, DELTA, FULL, Pulls, ServerVariable
from tf_gc.parameter_server.traffic import ServerTraffic
from tf_gc.params import Auto, CompressionParams, OneBit, Quantized, TwoBit, from_params
from tf_gc.params.arguments import check
from tf_gc.reducers.reducer import Sender, Spec
from tf_gc.schedule import Schedule
from tf_gc.state.stream import current_stream
from tf_gc.steps.compression_state import CompressionState
from tf_gc.strategies.compressed_strategy import refuse_params
from tf_gc.strategies.loops import all_reduce_gradients

_PULLS = (FULL, BFLOAT16, DELTA)


class CompressedParameterServerStrategy(KerasStrategy, tf.distribute.ParameterServerStrategy):
    """`tf.distribute.ParameterServerStrategy` that pushes gradients in compressed form.

    ```python
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf_gc.CompressedParameterServerStrategy(resolver, pull="delta")
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    ```

    Each worker keeps the rounding error of its gradients in its own residuals, and a server
    applies what a worker pushes at once, without waiting for others (MXNet's `dist_async`). All
    workers and servers run `tf_gc.run_server()`.
    """

    asynchronous = True
    workers = Workers()  # this process alone: the workers run no program of their own

    def __init__(
        self,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
        variable_partitioner: tf.distribute.experimental.partitioners.Partitioner | None = None,
        compression_params: CompressionParams | Mapping[str, Any] | None = None,
        *,
        pull: str = FULL,
    ) -> None:
        """Initializes the strategy, and connects to all workers and servers.

        Args:
          cluster_resolver: says who they are, as in `tf.distribute.ParameterServerStrategy`.
          variable_partitioner: cuts variables into shards on several servers, likewise. Keras 3
            knows no such variables.
          compression_params: as of the other strategies. Each worker has a warm-up of its own.
          pull: how workers get the values of float32 variables of 2,048 elements and more: "full",
            "bfloat16", or "delta", what has changed since the worker's last pull, in three bits an
            element, for which the servers keep a copy of these variables for each worker.

        Raises:
          ValueError: if an argument has an unknown value, or one that is of no use under parameter
            servers; or a worker has several GPUs.
          TypeError: if `compression_params` is of another type.
          RuntimeError: if a worker or server has not loaded tf_gc's native ops.
          ImportError: if the installed TensorFlow or Keras lacks a private part that tf_gc needs.
        """
        refuse_params("variable_partitioner", variable_partitioner)
        params = from_params(compression_params)
        _check_params(params)
        check(pull in _PULLS, f"pull must be one of {list(_PULLS)}", pull)
        pushes = Pushes(self, params)
        install(self, several_workers=False)
        super().__init__(cluster_resolver, variable_partitioner)
        _require_ops_everywhere(cluster_resolver)
        extended = _CompressedParameterServerExtended(
            self, cluster_resolver, variable_partitioner, pushes, pull
        )
        if len(extended.worker_devices) > 1:
            raise ValueError(
                "tf_gc compresses the gradients of workers with one GPU or none, and these have "
                f"{len(extended.worker_devices)}: start a worker for each GPU"
            )
        tf.distribute.Strategy.__init__(self, extended)
        self._should_use_with_coordinator = True
        self._compression_params = params

    @property
    def compression_params(self) -> CompressionParams:
        """Says which gradients are compressed, and how: the value that the argument stands for."""
        return self._compression_params

    @property
    def schedule(self) -> Schedule | None:
        """Says how each gradient is pushed; `None` until a step with compression was traced."""
        return self.extended.pushes.schedule

    @property
    def traffic(self) -> ServerTraffic | None:
        """The bytes of a worker's step; `None` until a compressed step was traced."""
        extended = self.extended
        if extended.pushes.schedule is None:
            return None
        return ServerTraffic(extended.pushes.sent, extended.pulls.sent)

    @property
    def compression_state(self) -> CompressionState:
        """The residuals; trackable, so it can go into a `tf.train.Checkpoint`."""
        return self.extended.pushes.state

    @property
    def senders(self) -> Mapping[Spec, Sender | str]:
        return self.extended.pushes.senders


@tf.autograph.experimental.do_not_convert  # AutoGraph would convert what this calls
def push_gradients(
    grads_and_vars: Iterable[tuple[GradientValue, Any]], stream: str | None = None
) -> list[GradientValue]:
    """Pushes gradients to the parameter servers that have their variables.

    Keras' optimizers do this by themselves under `tf_gc.CompressedParameterServerStrategy`, so it
    is for functions that update variables in another way:

    ```python
    def replica_fn(batch):
        ...
        for gradient, variable in zip(
            tf_gc.push_gradients(zip(gradients, variables)), variables
        ):
            with tf.device(variable.device):  # on the server, or what was pushed comes back
                variable.assign_sub(0.1 * gradient)
    ```

    Arguments, results and errors are those of `tf_gc.all_reduce_gradients`, but a compressed
    gradient comes out on the server of its variable.

    Raises:
      RuntimeError: also under other strategies.
    """
    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, CompressedParameterServerStrategy):
        raise RuntimeError(
            "tf_gc.push_gradients is for functions that tf_gc.CompressedParameterServerStrategy "
            f"runs; the strategy here is {type(strategy).__name__}. To sum gradients over replicas "
            "call tf_gc.all_reduce_gradients"
        )
    return all_reduce_gradients(grads_and_vars, stream)


class _CompressedParameterServerExtended(_compat.ParameterServerExtended):
    def __init__(
        self,
        strategy: CompressedParameterServerStrategy,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
        variable_partitioner: Any,
        pushes: Pushes,
        pull: str,
    ) -> None:
        super().__init__(strategy, cluster_resolver, variable_partitioner)
        self.pushes = pushes
        self.pulls = Pulls(pull, self._container_strategy)
        self._as_stock = pull == FULL and not pushes.state.in_use
        self._bytes_of_servers = [0] * cluster_resolver.cluster_spec().num_tasks("ps")
        self._shards_of_servers: list[int] = []  # of the variable that is being made

    def _create_var_creator(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        create = super()._create_var_creator(next_creator, **kwargs)
        if self._as_stock:
            return create
        return lambda **kwargs: ServerVariable(create(**kwargs).get(), self.pulls)

    def _create_variable(self, next_creator: Any, **kwargs: Any) -> Any:
        outer, self._shards_of_servers = self._shards_of_servers, [0] * len(self._bytes_of_servers)
        try:
            return super()._create_variable(next_creator, **kwargs)
        finally:
            self._shards_of_servers = outer

    def _create_variable_round_robin(self, next_creator: Any, **kwargs: Any) -> Any:
        # In turns, as TensorFlow places them, a model of dense layers has its kernels on one of two
        # servers and its biases on the other. The one that has least gets the next variable; of one
        # in shards, which steps read at the same time, each server gets equally many.
        loads = [*zip(self._shards_of_servers, self._bytes_of_servers, strict=True)]
        server = loads.index(min(loads))
        self._shards_of_servers[server] += 1
        self._variable_count = server
        variable = super()._create_variable_round_robin(next_creator, **kwargs)
        self._bytes_of_servers[server] += (variable.shape.num_elements() or 0) * variable.dtype.size
        return variable

    def _batch_reduce_to(
        self, reduce_op: Any, value_destination_pairs: Sequence[tuple[Any, Any]], options: Any
    ) -> list[Any]:
        pairs = list(value_destination_pairs)
        sums = reduce_op == tf.distribute.ReduceOp.SUM and not tf.executing_eagerly()
        pushes = sums and self.pushes.state.in_use
        # A gradient is what is summed for a variable.
        mine = [i for i, pair in enumerate(pairs) if pushes and isinstance(pair[1], ServerVariable)]
        rest = [i for i in range(len(pairs)) if i not in mine]
        results: dict[int, Any] = {}
        if mine:
            gradients, variables = zip(*(pairs[i] for i in mine), strict=True)
            pushed = self.pushes.push(current_stream(), gradients, variables)
            results |= zip(mine, pushed, strict=True)
        if rest:
            stock = super()._batch_reduce_to(reduce_op, [pairs[i] for i in rest], options)
            results |= zip(rest, stock, strict=True)
        return [results[i] for i in range(len(pairs))]

    def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(fn, _compat.Function) and not (tf.executing_eagerly() or fn._jit_compile):
            inner = fn.python_function  # its graph is the one in which replicas run
            run = fn._clone(lambda *args, **kw: self._call_for_each_replica(inner, args, kw))
            return run(*args, **kwargs)
        with self.pulls.run():
            return super()._call_for_each_replica(fn, args, kwargs)


def _check_params(params: CompressionParams) -> None:
    if isinstance(params, Auto):
        raise ValueError(
            "compression_params must not be tf_gc.Auto under parameter servers: workers do "
            f"not step together, so step times cannot be compared; got {params!r}"
        )
    for each in params.contained():
        _check_params(each)
    if isinstance(params, Quantized | TwoBit | OneBit) and params != dataclasses.replace(
        params, sum_bits=None
    ):
        raise ValueError(
            f"sum_bits={params.sum_bits} is for sums that replicas send each other, and parameter "
            f"servers send none: leave sum_bits out; got {params!r}"
        )


def _require_ops_everywhere(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    """Raises RuntimeError if a worker or a server has not tf_gc's native ops; it says which."""
    nothing = tf.IndexedSlices(tf.zeros([0, 1]), tf.zeros([0], tf.int64), tf.constant([1, 1]))
    for job in JOBS:
        for index in range(resolver.cluster_spec().num_tasks(job)):
            try:
                with tf.device(f"/job:{job}/task:{index}/device:CPU:0"):
                    ops.encode_rows([nothing], (), [[1, 1]], EXACT)
            except tf.errors.OpError as error:
                raise RuntimeError(
                    f"/job:{job}/task:{index} cannot run tf_gc's native ops; start this task with "
                    f"tf_gc.run_server() or python -m tf_gc.server: {error.message}"
                ) from None
