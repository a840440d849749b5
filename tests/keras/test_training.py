"""`fit`, compressed and not, goes as under the stock strategy."""

import dataclasses
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.bits import assert_same_bits
from tests.cases import cases, matrix
from tests.keras.compressed import (
    AUTO,
    NONE,
    assert_replicas_agree,
    assert_trains_compressed,
    components,
    compressed_strategy,
    total_residual,
)
from tests.keras.stock import (
    BATCH,
    CLASSES,
    FEATURES,
    Build,
    MakeOptimizer,
    Run,
    assert_same_run,
    compiled,
    data,
    fit,
    in_batches,
    mlp,
    normalized_mlp,
    sgd,
    stock_strategy,
)
from tf_gc.params import CompressionParams, TwoBit

pytestmark = pytest.mark.optimized_graphs


class Unused(keras.layers.Layer):
    """No loss depends on its variable, whose gradient is None."""

    def build(self, shape: Any) -> None:
        self.unused = self.add_weight(shape=(5,), initializer="ones", name="unused")
        self.built = True

    def call(self, x: Any) -> Any:
        return x


def of_each_kind() -> keras.Model:
    """A model with rows, a shared layer, dropout and an unused variable."""
    inputs = keras.Input((FEATURES,))
    x = keras.layers.Rescaling(0.1)(inputs)
    shared = keras.layers.Dense(FEATURES, activation="tanh")
    x = keras.layers.Dropout(0.3)(shared(shared(x)))
    words = keras.layers.Flatten()(keras.layers.Embedding(20, 8)(inputs))
    both = Unused(name="unused")(keras.layers.Concatenate()([x, words]))
    return keras.Model(inputs, keras.layers.Dense(CLASSES)(both))


def lstm() -> keras.Model:
    layers = [keras.layers.Reshape((4, FEATURES // 4)), keras.layers.LSTM(8)]
    return keras.Sequential([keras.Input((FEATURES,)), *layers, keras.layers.Dense(CLASSES)])


def mlp_of(*dtypes: str) -> Build:
    def build() -> keras.Model:
        layers = [
            keras.layers.Dense(16, activation="relu", dtype=dtypes[0]),
            keras.layers.Dense(CLASSES, dtype=dtypes[-1]),
            keras.layers.Activation("linear", dtype="float32"),
        ]
        return keras.Sequential([keras.Input((FEATURES,)), *layers])

    return build


float16 = mlp_of("mixed_float16")


def averaged(**clipping: float) -> MakeOptimizer:
    """With a schedule, weight decay and averages of weights, none of which hides the others."""

    def make() -> keras.optimizers.Optimizer:
        falling = keras.optimizers.schedules.PiecewiseConstantDecay([4], [0.1, 0.05])
        options = {"weight_decay": 0.01, "use_ema": True, "ema_momentum": 0.5}
        return keras.optimizers.SGD(falling, **options, **clipping)

    return make


def scaled_sgd() -> keras.optimizers.Optimizer:
    return keras.optimizers.LossScaleOptimizer(
        sgd(), initial_scale=1024.0, dynamic_growth_steps=1000
    )


@dataclasses.dataclass(frozen=True)
class Training:
    """How to train; in the last batch of 61 rows a replica has no sample at all."""

    build: Build = mlp
    optimizer: MakeOptimizer = sgd
    replicas: int = 2
    uneven: bool = False

    def under(self, strategy: tf.distribute.Strategy) -> Run:
        model = compiled(strategy, self.build, self.optimizer)
        x, y = data(192)
        # Whole numbers, since an Embedding looks them up.
        x, y, batch = np.abs(x * 6).astype(np.int32).astype(np.float32), y, BATCH
        arguments: dict[str, Any] = {}
        if self.uneven:
            x, y, batch = x[:61], y[:61], 20
            arguments = {
                "validation_data": (x[:24], y[:24]),
                "class_weight": {0: 1.0, 1: 3.0, 2: 0.25},
            }
        history = model.fit(x, y, batch, 2, shuffle=False, verbose=0, **arguments)
        return Run(model, history.history)


TRAININGS = {
    "each kind": Training(of_each_kind, averaged()),
    "normalized": Training(
        lambda: normalized_mlp(True, False),
        lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
        replicas=4,
    ),
    "float16": Training(float16, scaled_sgd),
    "uneven": Training(mlp, averaged(global_clipnorm=0.1), uneven=True),
    "LSTM": Training(lstm, averaged(clipnorm=0.05)),
    "bfloat16": Training(mlp_of("mixed_bfloat16"), averaged(clipvalue=0.02)),
    "float16 variables": Training(mlp_of("float16")),
}


# tests/keras2 asks the same of tf_keras.
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if i < 4 else matrix) for i, n in enumerate(TRAININGS)]
)
def test_training_goes_as_under_the_stock_strategy(name: str) -> None:
    training = TRAININGS[name]
    expected = training.under(stock_strategy(training.replicas))
    none = compressed_strategy(training.replicas, NONE)
    assert_same_run(training.under(none), expected)
    assert none.traffic is None
    assert len(none.compression_state) == 0

    strategy = compressed_strategy(training.replicas)
    run = training.under(strategy)
    assert_trains_compressed(strategy, run, like=expected)
    optimizer, weights = run.model.optimizer, run.model.trainable_variables
    # Slots and averages, the step counter and the learning rate.
    assert_replicas_agree(strategy, optimizer.variables)
    if getattr(optimizer, "use_ema", False):
        # fit() ends by putting the averages in place of the weights.
        averages = optimizer._model_variables_moving_average
        for average, variable in zip(averages, weights, strict=True):
            assert (average.numpy() != 0).any()
            assert_same_bits(components(average)[0], components(variable)[0])
    without = 0
    if training.build is of_each_kind:
        # The sparse gradient of a small embedding takes the stock path.
        assert strategy.traffic.bypassed_tensors == 1
        # A variable without gradient stays as it is.
        assert_same_bits(run.model.get_layer("unused").unused.numpy(), np.ones(5, np.float32))
        without = 2
    assert strategy.traffic.compressed_tensors == len(weights) - without
    assert len(strategy.compression_state) == len(weights) - without


# The steps of these tests are within its warm-up.
WARM = TwoBit(bypass_size=0)


@cases("overflowing, params", (1, AUTO), (0, NONE), (0, WARM))
def test_a_step_that_overflows_on_one_replica_is_skipped_on_all(
    overflowing: int, params: CompressionParams
) -> None:
    strategy = compressed_strategy(2, params)
    model = compiled(strategy, float16, scaled_sgd)
    x, y = data(BATCH)
    model.fit(x, y, batch_size=BATCH, verbose=0)
    weights = model.get_weights()
    kernel = model.layers[0].kernel
    kept = total_residual(strategy, kernel) if params is not NONE else None

    too_large = x.copy()
    too_large[overflowing * BATCH // 2] = 1e30
    model.fit(too_large, y, batch_size=BATCH, shuffle=False, verbose=0)
    for before, after in zip(weights, model.get_weights(), strict=True):
        assert_same_bits(before, after)
    assert float(model.optimizer.dynamic_scale.numpy()) == 512.0
    assert int(model.optimizer.iterations.numpy()) == 1
    if kept is not None:
        assert_same_bits(total_residual(strategy, kernel), kept)
    assert_replicas_agree(strategy, model.optimizer.variables)

    model.fit(x, y, batch_size=BATCH, verbose=0)
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    assert any(not np.array_equal(a, b) for a, b in zip(weights, model.get_weights(), strict=True))
    assert strategy.compression_state.warm_up_steps == (2 if params is WARM else 0)


@cases("params", AUTO, NONE)
def test_layers_of_double_and_of_single_precision_train_together(params: CompressionParams) -> None:
    """The stock strategy cannot do that: it concatenates all gradients."""
    strategy = compressed_strategy(2, params)
    run = fit(strategy, mlp_of("float64", "float32"))
    assert run.losses[-1] < 0.9 * run.losses[0]
    assert_replicas_agree(strategy, run.model.trainable_variables)
    assert len(strategy.compression_state) == (2 if params is AUTO else 0)


# A model is built from the first batch, whatever the replicas get of it.
def test_a_batch_may_not_divide_among_the_replicas() -> None:
    strategy = compressed_strategy(3)  # for which 16 samples are 6, 6 and 4
    run = fit(strategy)
    assert run.losses[-1] < run.losses[0]
    assert_replicas_agree(strategy, run.model.trainable_variables)


WORDS = ["red", "green", "blue"]


def test_inputs_may_be_strings() -> None:
    def of_words() -> keras.Model:
        words = [keras.Input((2,), dtype="string"), keras.layers.StringLookup(vocabulary=WORDS)]
        rows = [keras.layers.Embedding(len(WORDS) + 1, 8), keras.layers.Flatten()]
        return keras.Sequential([*words, *rows, keras.layers.Dense(len(WORDS))])

    strategy = compressed_strategy()
    model = compiled(strategy, of_words, lambda: keras.optimizers.SGD(1.0))
    labels = np.random.default_rng(0).integers(len(WORDS), size=64)
    x = np.array([[WORDS[label], "green"] for label in labels])
    losses = model.fit(in_batches((x, labels)), epochs=2, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
