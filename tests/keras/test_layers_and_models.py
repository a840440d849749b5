"""Layers whose gradients are of another kind, and models that share or change variables."""

import functools
from typing import Any

import numpy as np
import pytest

from tests.cases import cases, matrix
from tests.keras.compressed import (
    NONE,
    assert_replicas_agree,
    assert_trains_compressed,
    compressed_strategy,
    total_residual,
)
from tests.keras.flavour import keras
from tests.keras.stock import (
    BATCH,
    CLASSES,
    FEATURES,
    SAMPLES,
    Build,
    assert_same_bits,
    assert_same_run,
    assert_same_weights,
    compiled,
    data,
    fit,
    normalized_mlp,
    stock_strategy,
)

pytestmark = pytest.mark.flavours


def _lstm() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Reshape((4, FEATURES // 4)),
            keras.layers.LSTM(8),
            keras.layers.Dense(CLASSES),
        ]
    )


def _of_each_kind() -> keras.Model:
    """A model with rows, a shared layer, dropout and an unused variable."""

    class Unused(keras.layers.Layer):
        """No loss depends on its variable, whose gradient is None."""

        def build(self, shape: Any) -> None:
            self.unused = self.add_weight(shape=(5,), initializer="ones", name="unused")
            self.built = True

        def call(self, x: Any) -> Any:
            return x

    inputs = keras.Input((FEATURES,))
    x = keras.layers.Rescaling(0.1)(inputs)
    shared = keras.layers.Dense(FEATURES, activation="tanh")
    x = shared(shared(x))
    x = keras.layers.Dropout(0.3)(x)
    words = keras.layers.Flatten()(keras.layers.Embedding(20, 8)(inputs))
    both = Unused(name="unused")(keras.layers.Concatenate()([x, words]))
    return keras.Model(inputs, keras.layers.Dense(CLASSES)(both))


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@cases("build", _of_each_kind, _lstm, ids=lambda build: build.__name__[1:])
def test_models_train_as_under_the_stock_strategy(build: Build) -> None:
    x, y = data(3 * SAMPLES)
    words = np.abs(x * 6).astype(np.int32).astype(np.float32)
    train = functools.partial(fit, build=build, training_data=(words, y))
    expected = train(stock_strategy())
    assert_same_run(train(compressed_strategy(params=NONE)), expected)
    strategy = compressed_strategy()
    run = train(strategy)
    assert_trains_compressed(strategy, run, like=expected)
    assert strategy.traffic is not None
    variables = len(run.model.trainable_variables)
    if build is _lstm:
        assert strategy.traffic.compressed_tensors == variables
        return
    # The sparse gradient of a small embedding takes the stock path.
    assert strategy.traffic.bypassed_tensors == 1
    assert strategy.traffic.compressed_tensors == variables - 2
    # A variable without gradient stays as it is.
    assert_same_bits(run.model.get_layer("unused").unused.numpy(), np.ones(5, np.float32))
    assert len(strategy.compression_state) == variables - 2


def _freeze(model: keras.Model, layer: int, frozen: bool, optimizer: Any = None) -> None:
    """Compiles again, with a new optimizer unless one is given: residuals end with theirs."""
    model.layers[layer].trainable = not frozen
    optimizer = optimizer or keras.optimizers.SGD(0.1)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def _fit(model: keras.Model) -> list[float]:
    return model.fit(*data(), batch_size=BATCH, shuffle=False, verbose=0).history["loss"]


@matrix
def test_residuals_stay_with_their_variables_while_a_layer_is_frozen() -> None:
    strategy = compressed_strategy()
    model = compiled(strategy)
    first, second = (layer.kernel for layer in model.layers)
    _fit(model)
    kept = total_residual(strategy, first), total_residual(strategy, second)
    weight = first.numpy()
    with strategy.scope():
        _freeze(model, 0, frozen=True, optimizer=model.optimizer)
    _fit(model)
    assert_same_bits(first.numpy(), weight)
    assert_same_bits(total_residual(strategy, first), kept[0])
    assert (total_residual(strategy, second) != kept[1]).any()
    with strategy.scope():
        _freeze(model, 0, frozen=False, optimizer=model.optimizer)
    assert_same_bits(total_residual(strategy, first), kept[0])
    _fit(model)
    assert (first.numpy() != weight).any()
    assert (total_residual(strategy, first) != kept[0]).any()
    assert len(strategy.compression_state) == 4
    assert_replicas_agree(strategy, model.trainable_variables)


@matrix
def test_freezing_without_compression_equals_stock() -> None:
    models = []
    for strategy in (compressed_strategy(params=NONE), stock_strategy()):
        model = compiled(strategy)
        for frozen in (True, False):
            with strategy.scope():
                _freeze(model, 0, frozen)
            _fit(model)
        models.append(model)
    assert_same_weights(*models)


@matrix
def test_two_models_under_one_strategy_train_as_each_would_alone() -> None:
    normalized = functools.partial(normalized_mlp, True)

    def pair(strategies: list[Any]) -> list[keras.Model]:
        models = [compiled(strategies[0]), compiled(strategies[1], normalized)]
        for _ in range(2):
            for model in models:
                _fit(model)
        return models

    together = compressed_strategy()
    both = pair([together, together])
    alone = pair([compressed_strategy(), compressed_strategy()])
    for a, b in zip(both, alone, strict=True):
        assert_same_weights(a, b)
    assert len(together.compression_state) == sum(len(m.trainable_variables) for m in both)
