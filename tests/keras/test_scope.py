"""Models and optimizers made outside of a strategy's scope, and strategies that nobody uses."""

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.cases import matrix
from tests.keras import stock
from tests.keras.compressed import compressed_strategy
from tf_gc.keras.strategy import KerasStrategy

OPTIMIZERS = [keras.optimizers.SGD, pytest.param(keras.optimizers.Adam, marks=matrix)]


def in_a_loop(
    strategy: tf.distribute.Strategy, model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> None:
    x, y = stock.data()

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(stock.cross_entropy()(y, model(x)))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)

    tf.function(lambda: strategy.run(step))()


def by_fit(
    strategy: tf.distribute.Strategy, model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> None:
    with strategy.scope():
        model.compile(optimizer, stock.cross_entropy())
    model.fit(stock.batches(32), verbose=0)


def with_an_old_layer(strategy: tf.distribute.Strategy) -> keras.Model:
    """A model whose first layer was made before, outside of the scope."""
    layer = keras.layers.Dense(16, name="hidden")
    layer.build((None, stock.FEATURES))
    with strategy.scope():
        return keras.Sequential([keras.Input((stock.FEATURES,)), layer, keras.layers.Dense(3)])


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("train", [by_fit, in_a_loop])
@pytest.mark.parametrize("whole", [True, pytest.param(False, marks=matrix)])
def test_variables_from_outside_are_refused_in_words(
    make: Callable[[], Any], train: Callable[..., None], whole: bool
) -> None:
    strategy = compressed_strategy()
    model = stock.named_mlp() if whole else with_an_old_layer(strategy)
    with strategy.scope():
        optimizer = make()
    with pytest.raises(
        RuntimeError, match=r"hidden/kernel.* made outside of the scope of the Comp"
    ):
        train(strategy, model, optimizer)


def test_an_optimizer_from_outside(caplog: pytest.LogCaptureFixture) -> None:
    strategy = compressed_strategy()
    with strategy.scope():
        model = stock.mlp()
    with pytest.raises(RuntimeError, match=r"tells/iteration.* made outside of the scope"):
        by_fit(strategy, model, keras.optimizers.Adam(name="tells"))
    optimizer = keras.optimizers.SGD(name="counts_twice")
    by_fit(strategy, model, optimizer)
    in_a_loop(strategy, model, optimizer)
    # As under the stock strategies: two steps of fit, one of the loop, by two replicas.
    assert optimizer.iterations.numpy() == 6
    (said,) = [message for message in caplog.messages if "counts_twice" in message]
    assert "made outside of the scope of the CompressedMirroredStrategy" in said


def test_a_forgotten_scope_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    KerasStrategy.unused.clear()  # those of other tests
    model = stock.compiled(tf.distribute.get_strategy())
    used = compressed_strategy()
    with used.scope():
        pass
    model.fit(stock.batches(32), verbose=0)
    assert not caplog.messages
    unused = compressed_strategy()  # noqa: F841
    stock.fit(stock.stock_strategy(), epochs=1)  # on purpose
    assert not [message for message in caplog.messages if "tf_gc" in message]
    for _ in range(2):
        stock.compiled(tf.distribute.get_strategy()).fit(stock.batches(32), verbose=0)
    (said,) = [message for message in caplog.messages if "tf_gc" in message]
    assert "with strategy.scope()" in said
