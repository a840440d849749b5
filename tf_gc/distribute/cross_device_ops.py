"""CompressedAllReduce: compresses gradients, leaves every other reduction alone."""

import copy
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from tf_gc import _compat, warm_up
from tf_gc.codecs import Codec, MessageCodec
from tf_gc.reduction.buckets import Grouping, group
from tf_gc.reduction.exchange import is_cpu
from tf_gc.reduction.plans import Plan
from tf_gc.reduction.traffic import Traffic, all_gather_bytes, all_reduce_bytes
from tf_gc.residuals import CompressionState

Pairs = Sequence[tuple[Any, Any]]


class CompressedAllReduce(tf.distribute.CrossDeviceOps):
    """Cross-device ops that sum gradients through a codec.

    A value is taken for a gradient if it is reduced in a batch with `ReduceOp.SUM` to the
    devices of a distributed variable: `batch_reduce(SUM, [(gradient, variable), ...])`. That
    is how `tf_gc.all_reduce_gradients` and, through it, Keras' optimizers call it. All else,
    that is metrics, losses, BatchNormalization statistics and single reductions, goes to
    `stock`, as do gradients that the codec does not compress.

    Attributes:
      codec: what gradients are sent as.
      plan: who sends what to whom; `None` if the codec has no messages.
      compression_state: the residuals.
      traffic: the `Traffic` of the most recently built reduction, or `None` before the first.
    """

    def __init__(
        self,
        stock: tf.distribute.CrossDeviceOps,
        codec: Codec,
        replicas: int,
        plan: Plan | None = None,
    ) -> None:
        """Initializes the object.

        Args:
          stock: the cross-device ops that reduce everything but compressed gradients.
          codec: the codec.
          replicas: the number of replicas that take part, on all hosts.
          plan: how messages get to the other replicas; needed if the codec is a `MessageCodec`.
        """
        super().__init__()
        self._stock = stock
        self._replicas = replicas
        self.codec = codec
        self.plan = plan
        self.compression_state = CompressionState(in_use=isinstance(codec, MessageCodec))
        self.traffic: Traffic | None = None
        self._said_that_nothing_is_compressed = False

    def __deepcopy__(self, memo: dict[int, Any]) -> "CompressedAllReduce":
        # The copy starts with residuals of its own: those here belong to variables of the original.
        return CompressedAllReduce(
            copy.deepcopy(self._stock, memo), self.codec, self._replicas, self.plan
        )

    @property
    def _num_between_graph_workers(self) -> int:
        return self._stock._num_between_graph_workers

    def reduce_implementation(
        self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any
    ) -> Any:
        return self._stock.reduce_implementation(
            reduce_op, per_replica_value, destinations, options
        )

    def broadcast_implementation(self, tensor: Any, destinations: Any) -> Any:
        return self._stock.broadcast_implementation(tensor, destinations)

    def _all_reduce(self, reduce_op: Any, value: Any, replica_id: int, options: Any) -> Any:
        return self._stock._all_reduce(reduce_op, value, replica_id, options)

    def _gather_implementation(
        self, per_replica_value: Any, destinations: Any, axis: int, options: Any
    ) -> Any:
        return self._stock._gather_implementation(per_replica_value, destinations, axis, options)

    def batch_reduce_implementation(
        self, reduce_op: Any, value_destination_pairs: Pairs, options: Any
    ) -> list[Any]:
        pairs = list(value_destination_pairs)
        once = [i for i, (value, _) in enumerate(pairs) if self._is_reduced(value)]
        if once:
            # One tensor for all local replicas: it is what they have reduced already, for instance
            # by `strategy.reduce`, or a constant.
            rest = [i for i in range(len(pairs)) if i not in once]
            results = {i: self._stock.broadcast(pairs[i][0].values[0], pairs[i][1]) for i in once}
            if rest:
                reduced_rest = self.batch_reduce_implementation(
                    reduce_op, [pairs[i] for i in rest], options
                )
                results.update(zip(rest, reduced_rest, strict=True))
            return [results[i] for i in range(len(pairs))]
        if reduce_op != tf.distribute.ReduceOp.SUM or self._replicas == 1:
            return self._stock.batch_reduce_implementation(reduce_op, pairs, options)
        sizes = [_size(*pair) for pair in pairs]
        grouping = group(self.codec, sizes, options.bytes_per_pack)
        reduced: list[Any] = [None] * len(pairs)
        compressible = [i for bucket in grouping.buckets for i in bucket.indices]
        sent: int | None = None

        def compressed() -> list[list[tf.Tensor]]:
            nonlocal sent
            sent = 0
            components = []
            for number, bucket in enumerate(grouping.buckets):
                of_bucket = [pairs[i] for i in bucket.indices]
                sums, size = self._sum_bucket(number, of_bucket, options)
                sent += size
                components += sums
            return components

        if compressible and self.codec.warm_up:
            state = self.compression_state.warm_up_of(pairs[compressible[0]][1])
            # One branch for all buckets: TensorFlow would run one after the other those that
            # share what is stateful, such as the order of the collectives.
            sums = tf.cond(
                warm_up.is_on(state.values[0].read_value()),
                lambda: self._warm_up_step(state, pairs, grouping, options),
                compressed,
            )
        else:
            sums = compressed()
        for i, components in zip(compressible, sums, strict=True):
            reduced[i] = _compat.regroup(tuple(components), wrap_class=_compat.Mirrored)
        bypassed = self._stock_sums([pairs[i] for i in grouping.bypass], options)
        for i, value in zip(grouping.bypass, bypassed, strict=True):
            reduced[i] = value
        # Eagerly, a step of the warm-up has not come to compression yet.
        gradients = any(isinstance(pair[1], _compat.DistributedVariable) for pair in pairs)
        if self.plan is not None and sent is not None and gradients:
            self._account(pairs, grouping, sent)
            if not compressible:
                self._say_that_nothing_is_compressed(sizes)
            self.compression_state.say_what_was_restored()
        return reduced

    def _is_reduced(self, value: Any) -> bool:
        """Returns whether several local replicas have one and the same tensor."""
        return self._replicas > self._num_between_graph_workers and len(value.values) == 1

    def _stock_sums(self, pairs: Pairs, options: Any) -> list[Any]:
        """Returns each pair's sum by the stock ops."""
        # They concatenate what they get, and so take one dtype at a time.
        by_dtype: dict[tf.DType, list[int]] = {}
        for i, (value, _) in enumerate(pairs):
            by_dtype.setdefault(value.values[0].dtype, []).append(i)
        sums: list[Any] = [None] * len(pairs)
        for indices in by_dtype.values():
            stock = self._stock.batch_reduce_implementation(
                tf.distribute.ReduceOp.SUM, [pairs[i] for i in indices], options
            )
            for i, value in zip(indices, stock, strict=True):
                sums[i] = value
        return sums

    def _warm_up_step(
        self, state: Any, pairs: Pairs, grouping: Grouping, options: Any
    ) -> list[list[tf.Tensor]]:
        """Returns the buckets' sums on the local devices, by the stock ops."""
        reports = []
        for component in state.values:
            with tf.device(component.device):
                reports.append(warm_up.report(component.read_value()))
        totals = []
        for bucket in grouping.buckets:  # each by itself: the stock ops copy what they sum at once
            totals += self._stock_sums([pairs[i] for i in bucket.indices], options)
        totals += self._stock_sums([(_compat.PerReplica(reports), state)], options)
        # TensorFlow does not wrap the value of a single local replica.
        *sums, reported = [list(getattr(total, "values", [total])) for total in totals]
        after: tf.Tensor | None = None
        assigned = []
        for device, component in enumerate(state.values):
            with tf.device(component.device):
                # CPU devices, which share memory, have one of them do it for all.
                if after is None or not is_cpu(component.device):
                    mine = [components[device] for components in sums]
                    after = warm_up.after_step(component.read_value(), reported[device], mine)
                assigned.append(component.assign(after, read_value=False))
        if not _compat.builds_function():
            # A graph for a Session runs only what its results depend on, and a collective that is
            # left out on one device would be waited for on the others.
            with tf.control_dependencies([*assigned, *reported]), tf.device(sums[0][0].device):
                sums[0][0] = tf.identity(sums[0][0])
        return sums

    def _sum_bucket(
        self, number: int, pairs: Pairs, options: Any
    ) -> tuple[list[list[tf.Tensor]], int]:
        """Returns a bucket's sums on the local devices, and the bytes that a replica sends."""
        assert isinstance(self.codec, MessageCodec)
        assert self.plan is not None
        replicas = range(len(pairs[0][0].values))
        residuals = [self.compression_state.residuals_of(variable) for _, variable in pairs]
        sums, sent = self.plan.sum_bucket(
            self.codec,
            number,
            [[_shaped(value.values[r], variable) for value, variable in pairs] for r in replicas],
            [[residual[r] for residual in residuals] for r in replicas],
            options,
        )
        return [list(components) for components in zip(*sums, strict=True)], sent

    def _account(self, pairs: Pairs, grouping: Grouping, sent: int) -> None:
        assert self.plan is not None
        replicas = self._replicas
        stock = [_stock_bytes(value, variable, replicas) for value, variable in pairs]
        traffic = Traffic(
            plan=self.plan.name,
            replicas=replicas,
            buckets=len(grouping.buckets),
            compressed_tensors=len(pairs) - len(grouping.bypass),
            bypassed_tensors=len(grouping.bypass),
            sent_bytes=sent + sum(stock[i] for i in grouping.bypass),
            stock_bytes=sum(stock),
        )
        if traffic != self.traffic:
            logging.info("tf_gc: %s: %s", self.codec, traffic)
        self.traffic = traffic

    def _say_that_nothing_is_compressed(self, sizes: Sequence[tuple[tf.DType, int] | None]) -> None:
        """Warns, once, that all gradients take the stock path, and says why."""
        if self._said_that_nothing_is_compressed:
            return
        self._said_that_nothing_is_compressed = True
        dense = [elements for _, elements in filter(None, sizes)]
        reasons = []
        if len(dense) < len(sizes):
            reasons.append(f"{len(sizes) - len(dense)} are sparse (tf.IndexedSlices)")
        if dense:
            reasons.append(
                f"{len(dense)} have fewer elements than bypass_size, or a dtype that is not "
                f"compressed (the largest has {max(dense):,} elements)"
            )
        logging.warning(
            "tf_gc: nothing is compressed, so that this model gains nothing: of its %d gradients "
            "%s. Codec: %s",
            len(sizes),
            " and ".join(reasons),
            self.codec,
        )


def _size(value: Any, destination: Any) -> tuple[tf.DType, int] | None:
    """Returns dtype and elements if the pair is a dense gradient and its variable."""
    if not isinstance(value, _compat.PerReplica) or not isinstance(
        destination, _compat.DistributedVariable
    ):
        return None
    if not all(isinstance(component, tf.Tensor) for component in value.values):
        return None  # tf.IndexedSlices
    return value.values[0].dtype, destination.shape.num_elements()


def _shaped(gradient: tf.Tensor, variable: Any) -> tf.Tensor:
    """Returns a gradient that knows its shape; that of a loop, say, may not."""
    gradient.set_shape(variable.shape)
    return gradient


def _stock_bytes(value: Any, destination: Any, replicas: int) -> int:
    """Returns what a replica sends for a gradient on the stock path."""
    gradient = value.values[0]
    size = destination.shape.num_elements() * gradient.dtype.size
    if isinstance(gradient, tf.IndexedSlices):
        elements = gradient.values.shape.num_elements()
        rows = gradient.indices.shape.num_elements()
        if elements is not None and rows is not None:
            size = elements * gradient.dtype.size + rows * gradient.indices.dtype.size
            return all_gather_bytes(size, replicas)
    return all_reduce_bytes(size, replicas)
