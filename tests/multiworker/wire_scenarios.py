"""The same training with each wire."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc
from tf_gc.codecs import NativeCodec
from tf_gc.network.group import Group, LocalNetwork, Replica
from tf_gc.reducers.codes import Codes
from tf_gc.reducers.wire import WIRES

EVERY_TENSOR = {"warm_up": False, "bypass_size": 0}


def strategy_of(params: dict[str, Any]) -> tf_gc.CompressedMultiWorkerMirroredStrategy:
    return tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)


def on_each_wire(all_params: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Reduces and trains with each of several parameters, by each wire."""
    return [[run({**params, "wire": wire}) for wire in WIRES] for params in all_params]


def run(params: dict[str, Any]) -> dict[str, Any]:
    strategy = strategy_of(params)
    model = fit(strategy) if params["type"] == "quantized" else None
    traffic = [strategy.traffic] if model else []
    sums, variable = loop(strategy)
    traffic.append(strategy.traffic)
    residuals = [residual.numpy() for residual in strategy.compression_state.variables]
    assert len(residuals) == (5 if model else 1)  # none went with its variable
    del variable
    return {
        "weights": model.get_weights() if model else [],
        "sums": sums,
        "residuals": residuals,
        "traffic": traffic,
    }


def fit(strategy: tf.distribute.Strategy) -> keras.Model:
    """Trains with several steps in an execution."""
    random = np.random.default_rng(0)
    x, y = random.random((48, 64)).astype("f"), random.integers(4, size=48)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((64,)), keras.layers.Dense(300, "relu"), keras.layers.Dense(4)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss, steps_per_execution=2)
    model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
    return model


def loop(strategy: tf.distribute.Strategy) -> tuple[np.ndarray, tf.Variable]:
    """Sums gradients, some not finite, in a loop whose messages differ in length.

    Returns the sums, and the variable that the gradients are of.
    """
    with strategy.scope():
        variable = tf.Variable(tf.zeros([120_000]))

    @tf.function
    def steps() -> tf.Tensor:
        sums = tf.TensorArray(tf.float32, 4)
        for i in tf.range(4):

            def replica(i: tf.Tensor = i) -> tf.Tensor:
                number = tf.distribute.get_replica_context().replica_id_in_sync_group
                values = tf.random.stateless_normal([120_000], [i, number]) ** 3
                values *= tf.cast(tf.range(120_000) < 40_000 * (i + 1), tf.float32)
                values += tf.where((tf.range(120_000) == 77) & (i == 1), np.nan, 0.0)
                return tf_gc.all_reduce_gradients([(values, variable)])[0]

            total = strategy.run(replica)
            sums = sums.write(i, strategy.experimental_local_results(total)[0])
        return sums.stack()

    return steps().numpy(), variable


def traced_anew(wire: str) -> list[np.ndarray]:
    """Makes steps, the last of which has a smaller batch on the second worker alone."""
    strategy = strategy_of({"type": "2bit", "threshold": 0.5, "wire": wire})
    with strategy.scope():
        variable = tf.Variable(tf.zeros([60_000]))
    second = strategy.cluster_resolver.task_id == 1

    @tf.function(autograph=False)
    def step(batch: tf.Tensor) -> tf.Tensor:
        def replica() -> tf.Tensor:
            gradient = tf.random.stateless_normal([60_000], [1, 2]) * tf.reduce_sum(batch)
            return tf_gc.all_reduce_gradients([(gradient, variable)])[0]

        return strategy.run(replica)

    return [step(tf.ones([3 if second and i == 2 else 4])).numpy() for i in range(4)]


class Apart(LocalNetwork):
    """Two hosts, each with one device that stands for a GPU: another CPU sends its messages."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._network = strategy.extended._network
        self._cpu, gpu = strategy.extended.worker_devices
        super().__init__([gpu])
        self.hosts = 2

    def group(self, devices: Sequence[str]) -> Group:
        on_cpus = self._network.group([self._cpu])
        return dataclasses.replace(self._network.group(devices), on_cpus=on_cpus)


def sent_by_another_device(plans: Sequence[str]) -> list[list[list[np.ndarray]]]:
    """Sums a bucket three times by each plan and wire; returns the sums and residuals of each."""
    network = Apart(strategy_of({"type": "quantized"}))
    return [by_each_wire(network, plan) for plan in plans]


def by_each_wire(network: Apart, plan: str) -> list[list[np.ndarray]]:
    (device,) = network.devices
    codec = NativeCodec("three_bit", "auto", "four_bit")
    found = []
    for wire in WIRES:
        reducer = Codes(codec, plan, wire).on(network)
        with tf.device(device):
            residual = tf.Variable(tf.zeros([100, 700]))

        @tf.function(autograph=False)
        def steps(reducer: Any = reducer, residual: tf.Variable = residual) -> list[tf.Tensor]:
            sums, notes = [], {}
            for step in range(3):
                with tf.device(device):
                    seed = [step, 1 if "task:0" in device else 2]
                    gradient = tf.random.stateless_normal([100, 700], seed) ** 3
                replica = Replica(device, [gradient], [residual], [residual], notes=notes)
                options = tf.distribute.experimental.CommunicationOptions()
                sums += reducer.reduce(0, [replica], options).sums[0]
            return sums

        found.append([*(total.numpy() for total in steps()), residual.numpy()])
    return found


def chosen_wires(all_params: list[dict[str, Any]]) -> list[Any]:
    """Returns the rate that was measured, if it was, and the wire, for each of the parameters."""
    results = []
    for params in all_params:
        strategy = strategy_of(params)
        with strategy.scope():
            variable = tf.Variable(tf.zeros([9000]))
        step = tf.function(
            lambda strategy=strategy, variable=variable: strategy.run(
                lambda: tf_gc.all_reduce_gradients([(tf.ones([9000]), variable)])
            ),
            autograph=False,
        )
        step()
        results.append(
            (strategy.extended._network._rate, strategy.schedule.buckets[0].reducer.wire)
        )
    return results
