"""Layers whose gradients are of another kind, and models that share or change variables."""

import functools
from typing import Any

import numpy as np
import pytest

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
    Array,
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


def _embedding() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((FEATURES,), dtype="int32"),
            keras.layers.Embedding(20, 8, name="embedding"),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES),
        ]
    )


def _lstm() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Reshape((4, FEATURES // 4)),
            keras.layers.LSTM(8),
            keras.layers.Dense(CLASSES),
        ]
    )


def _dropout() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(CLASSES),
        ]
    )


def _shared() -> keras.Model:
    """One layer in two places."""
    inputs = keras.Input((FEATURES,))
    shared = keras.layers.Dense(FEATURES, activation="tanh")
    return keras.Model(inputs, keras.layers.Dense(CLASSES)(shared(shared(inputs))))


def _unused() -> keras.Model:
    """A variable that no loss depends on: its gradient is None."""

    class Unused(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(CLASSES)

        def build(self, input_shape: Any) -> None:
            self.unused = self.add_weight(shape=(5,), initializer="ones", name="unused")
            self.dense.build(input_shape)
            self.built = True

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

    return Unused()


BUILDS: dict[str, Build] = {
    "embedding": _embedding,
    "lstm": _lstm,
    "dropout": _dropout,
    "shared": _shared,
    "unused": _unused,
    "batch_normalization": functools.partial(normalized_mlp, synchronized=False),
    "synchronized_batch_normalization": functools.partial(normalized_mlp, synchronized=True),
}


def _data_for(name: str) -> tuple[Array, Array]:
    x, y = data(3 * SAMPLES)
    return (np.abs(x * 6).astype(np.int32), y) if name == "embedding" else (x, y)


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.parametrize("name", BUILDS)
def test_models_train_as_under_the_stock_strategy(name: str) -> None:
    train = functools.partial(fit, build=BUILDS[name], training_data=_data_for(name))
    expected = train(stock_strategy())
    assert_same_run(train(compressed_strategy(params=NONE)), expected)
    strategy = compressed_strategy()
    run = train(strategy)
    assert_trains_compressed(strategy, run, like=expected)
    assert strategy.traffic is not None
    # The sparse gradient of a small embedding takes the stock path.
    assert strategy.traffic.bypassed_tensors == (name == "embedding")
    if name == "embedding":
        assert strategy.traffic.compressed_tensors == 2
    if name == "unused":  # a variable without gradient stays as it is
        assert_same_bits(run.model.unused.numpy(), np.ones(5, np.float32))
        assert len(strategy.compression_state) == len(run.model.trainable_variables) - 1 == 2


def _freeze(model: keras.Model, layer: int, frozen: bool, optimizer: Any = None) -> None:
    """Compiles again, with a new optimizer unless one is given: residuals end with theirs."""
    model.layers[layer].trainable = not frozen
    optimizer = optimizer or keras.optimizers.SGD(0.1)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def _fit(model: keras.Model) -> list[float]:
    return model.fit(*data(), batch_size=BATCH, shuffle=False, verbose=0).history["loss"]


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
    _fit(model)
    assert (first.numpy() != weight).any()
    assert (total_residual(strategy, first) != kept[0]).any()
    assert len(strategy.compression_state) == 4
    assert_replicas_agree(strategy, model.trainable_variables)


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


def test_compiling_again_with_the_same_optimizer_keeps_the_residuals() -> None:
    strategy = compressed_strategy()
    model = compiled(strategy)
    losses = _fit(model)
    kernel = model.layers[0].kernel
    kept = total_residual(strategy, kernel)
    with strategy.scope():
        _freeze(model, 0, frozen=False, optimizer=model.optimizer)
    assert_same_bits(total_residual(strategy, kernel), kept)
    losses += _fit(model)
    assert losses == sorted(losses, reverse=True)
    assert len(strategy.compression_state) == 4


def test_two_models_under_one_strategy_train_as_each_would_alone() -> None:
    def pair(strategies: list[Any]) -> list[keras.Model]:
        models = [compiled(strategies[0]), compiled(strategies[1], _lstm)]
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
