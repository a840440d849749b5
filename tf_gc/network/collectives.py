"""TensorFlow's collectives: in control flow, side by side, and all-to-all."""

import copy
import functools
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_gc import _compat, ops
from tf_gc.network.group import Channel, Group, Received, is_cpu
from tf_gc.network.instance_keys import KeySource

# How many buckets may be on their way at the same time. Each has an ordering token: TensorFlow
# runs collectives that share one after each other.
_LANES = 4
# In lanes all collectives whose shapes are known have those of variables, alike on all workers.
_KINDS = ("all_gather", "all_reduce", "all_to_all")

# Where the keys of a new strategy's collectives start. TensorFlow numbers those of every strategy
# from the same start, so that two strategies in one process take each other's for their own. The
# workers of a job make their strategies in the same order, and so get the same ranges.
key_bases = itertools.count(1 << 20, 1 << 10)


class CollectiveOps(_compat.CollectiveAllReduce):
    """The stock collective cross-device ops with `instance_keys`, and channels for messages.

    `ordering_tokens` are the strategy's by device, which all its groups share and add to. A GPU
    that is in several groups runs their collectives in the order of the program: NCCL may stand
    still if two groups start theirs in different orders.
    """

    def __init__(
        self,
        devices: Any,
        group_size: int,
        options: Any,
        collective_keys: Any,
        ordering_tokens: dict[str, Any],
    ) -> None:
        super().__init__(devices, group_size, options, collective_keys)
        self._ordering_tokens = ordering_tokens
        self._group_key = self._launchers[0]._group_key
        self._on_cpu = all(is_cpu(device) for device in self._devices)
        self._launchers: list[Any] = self._new_launchers()
        # The stock reductions are not in a lane, but NCCL wants one order for all.
        if not self._on_cpu:
            for device, launcher in zip(self._devices, self._launchers, strict=True):
                token = launcher._ordering_token
                launcher._ordering_token = ordering_tokens.setdefault(device, token)
        self._lanes = [
            _Lane(self._new_launchers(_KINDS) if self._on_cpu else self._launchers, self._lock)
            for _ in range(_LANES if self._on_cpu else 1)
        ]

    def _new_launchers(self, kinds: Collection[str] = ()) -> "list[_Launcher]":
        launchers = [
            _Launcher(
                self._group_key, self._group_size, self._collective_keys, device, self._options
            )
            for device in self._devices
        ]
        keys, group, devices = self._collective_keys, self._group_key, self._devices
        key_source = KeySource(
            len(launchers), lambda replica: keys.get_instance_key(group, devices[replica])
        )
        for replica, launcher in enumerate(launchers):
            launcher.key_source, launcher.replica = key_source, replica
            launcher.kinds = kinds
        return launchers

    def beside(self) -> "CollectiveOps":
        """Returns ops that sum gradients of variables, in no order with this one's reductions.

        On GPUs, whose collectives need one order, that is this object.
        """
        if not self._on_cpu:
            return self
        twin = copy.copy(self)
        # Workers gather rows of lookups, whose number is their own.
        twin._launchers = self._new_launchers(["all_reduce"])
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> "CollectiveOps":
        return self  # a copy of the strategy goes on with these keys

    @functools.cached_property
    def group(self) -> Group:
        """The replicas of all hosts as a group whose members send messages.

        The first time, all workers have to ask for it. They find their ranks, which the order of
        the messages follows, by a trial, and see whether the all-to-all is in that order, too.
        """
        size = self._group_size
        channel = self.open(0, self._options)
        ids = np.random.default_rng().integers(1 << 62, size=(len(self._devices), 1, 1))
        gathered = channel.all_gather([tf.constant(mine) for mine in ids])
        everyone = [rows.numpy() for (rows,) in gathered]
        ranks = [int((rows == mine).argmax()) for mine, rows in zip(ids, everyone, strict=True)]
        sent = [tf.constant(rank * size + np.arange(size)[:, None]) for rank in ranks]
        for rank, (received,) in zip(ranks, channel.all_to_all(sent), strict=True):
            if not np.array_equal(received[:, 0], np.arange(size) * size + rank):
                raise RuntimeError(
                    f"TensorFlow's all-to-all gave replica {rank} the data of another: "
                    f"{received[:, 0].numpy().tolist()}"
                )
        return Group(tuple(ranks), size, self.open)

    def open(self, bucket: int, options: Any) -> Channel:
        return _CollectiveChannel(self._lanes[bucket % len(self._lanes)], self._group_size, options)


class _Lane:
    """Collectives that run one after the other, on each of the local replicas."""

    def __init__(self, launchers: Sequence["_Launcher"], lock: Any) -> None:
        self._launchers = launchers
        self._lock = lock
        # By the collective, and what it takes of the options, which are a new object in each step.
        self._functions: dict[Any, Any] = {}

    def launch(
        self, collective: Callable[..., tf.Tensor], values: Sequence[tf.Tensor], options: Any
    ) -> list[Received]:
        """Launches a collective of all members of a group; returns what each local one gets."""

        def launch_each(values: list[tf.Tensor]) -> list[tf.Tensor]:
            return [
                collective(launcher, value, options=options)
                for launcher, value in zip(self._launchers, values, strict=True)
            ]

        launch: Callable[..., Any] = launch_each
        if tf.executing_eagerly() and len(values) > 1:
            # Eagerly, the first of several local collectives would wait for the others for ever.
            key = (collective, options.timeout_seconds, options.implementation)
            if key not in self._functions:
                # Compact messages have another length in each step.
                self._functions[key] = tf.function(launch, reduce_retracing=True, autograph=False)
            launch = self._functions[key]
        with self._lock:
            return [[received] for received in launch(list(values))]


class _CollectiveChannel(Channel):
    """A channel by TensorFlow's collectives: a member receives [size, words], a row from each."""

    def __init__(self, lane: _Lane, size: int, options: Any) -> None:
        super().__init__(size)
        self._lane = lane
        self._options = options

    def all_gather(self, messages: Sequence[tf.Tensor]) -> Sequence[Received]:
        self.count(messages[0], messages[0].shape[0] * (self.size - 1))
        received = self._lane.launch(_Launcher._all_gather, messages, self._options)
        rows, *others = messages[0].shape
        return self._shaped(received, [self.size * rows, *others])

    def all_to_all(self, rows: Sequence[tf.Tensor]) -> Sequence[Received]:
        self.count(rows[0], self.size - 1)
        received = self._lane.launch(_Launcher.all_to_all, rows, self._options)
        return self._shaped(received, rows[0].shape)

    def all_reduce(self, vectors: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        self.count_all_reduce(vectors[0])
        received = self._lane.launch(_Launcher.all_reduce, vectors, self._options)
        return [total for (total,) in self._shaped(received, vectors[0].shape)]

    @staticmethod
    def _shaped(received: list[Received], shape: Any) -> list[Received]:
        for messages in received:
            messages[0].set_shape(shape)  # of which TensorFlow's collectives say nothing
        return received


class _Launcher(_compat.CollectiveReplicaLauncher):
    """Launches the collectives of one replica: number `replica` of those on this host."""

    key_source: KeySource
    replica: int
    kinds: Collection[str]  # the collectives whose shapes, if known, are alike on all workers

    def all_to_all(self, rows: tf.Tensor, options: Any) -> tf.Tensor:
        def launch(options: Any) -> tf.Tensor:
            with tf.device(self._device):
                return tf.raw_ops.CollectiveAllToAllV2(
                    input=rows,
                    group_size=self._group_size,
                    group_key=self._group_key,
                    instance_key=self._next_instance_key(),
                    ordering_token=[self._get_ordering_token()],
                    communication_hint=options.implementation.value.lower(),
                    timeout_seconds=options.timeout_seconds or 0,
                )

        return self._in_time("all_to_all", rows, options, launch)

    def all_reduce(
        self, input_tensor: tf.Tensor, control_input: Any = None, options: Any = None
    ) -> tf.Tensor:
        launch = functools.partial(super().all_reduce, input_tensor, control_input)
        return self._in_time("all_reduce", input_tensor, options, launch)

    def _all_gather(self, input_tensor: tf.Tensor, options: Any) -> tf.Tensor:
        launch = functools.partial(super()._all_gather, input_tensor)
        return self._in_time("all_gather", input_tensor, options, launch)

    def _in_time(
        self, op: str, tensor: tf.Tensor, options: Any, launch: Callable[[Any], tf.Tensor]
    ) -> tf.Tensor:
        """Launches a collective that ends with an error after the options' `timeout_seconds`."""
        known = op in self.kinds and tensor.shape.is_fully_defined()
        self._kind = (op, tensor.dtype, *tensor.shape) if known else None
        options = self._options.merge(options)
        seconds = options.timeout_seconds
        # Eagerly an op is a step, with which a deadline would end.
        if not seconds or tf.executing_eagerly():
            return launch(options)
        without = copy.copy(options)
        without.timeout_seconds = 0
        token = self._get_ordering_token()
        tokens = [] if token is None else [token]
        with tf.device(self._device):
            return ops.within(seconds, tensor, tokens, lambda: launch(without))

    def _next_instance_key(self) -> Any:
        return self.key_source.key(self.replica, super()._next_instance_key, self._kind)
