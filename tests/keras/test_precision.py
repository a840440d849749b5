"""Half precision, loss scaling and double precision."""

import functools

import keras
import numpy as np

from tests.cases import cases, matrix
from tests.keras.compressed import (
    AUTO,
    NONE,
    assert_replicas_agree,
    assert_trains_compressed,
    compressed_strategy,
    total_residual,
)
from tests.keras.stock import (
    BATCH,
    CLASSES,
    FEATURES,
    assert_same_bits,
    assert_same_run,
    compiled,
    data,
    fit,
    sgd,
    stock_strategy,
)
from tf_gc.params import CompressionParams, TwoBit


def _mlp(dtype: str) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(16, activation="relu", dtype=dtype),
            keras.layers.Dense(CLASSES, dtype=dtype),
            keras.layers.Activation("linear", dtype="float32"),
        ]
    )


def _scaled_sgd() -> keras.optimizers.Optimizer:
    return keras.optimizers.LossScaleOptimizer(
        sgd(), initial_scale=1024.0, dynamic_growth_steps=1000
    )


# All tensors of these models are below its size.
SMALL = TwoBit()
# The steps of these tests are within its warm-up.
WARM = TwoBit(bypass_size=0)

_float16 = functools.partial(_mlp, "mixed_float16")


@cases(
    "dtype, optimizer",
    ("mixed_float16", _scaled_sgd),
    ("mixed_bfloat16", sgd),
    ("float16", sgd),
)
def test_half_precision_trains_as_under_the_stock_strategy(dtype: str, optimizer: type) -> None:
    train = functools.partial(fit, build=functools.partial(_mlp, dtype), optimizer=optimizer)
    expected = train(stock_strategy())
    assert_same_run(train(compressed_strategy(params=NONE)), expected)
    strategy = compressed_strategy()
    compressed = train(strategy)
    assert_trains_compressed(strategy, compressed, like=expected)
    assert_replicas_agree(strategy, compressed.model.optimizer.variables)


@matrix
def test_bfloat16_variables_are_trained() -> None:
    strategy = compressed_strategy()
    run = fit(strategy, functools.partial(_mlp, "bfloat16"))
    assert run.losses[-1] < 0.9 * run.losses[0]
    assert_replicas_agree(strategy, run.model.trainable_variables)
    assert strategy.traffic is not None
    assert strategy.traffic.bypassed_tensors == 0


@matrix
def test_the_global_policy_scales_the_loss_by_itself() -> None:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        strategy = compressed_strategy()
        run = fit(strategy)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert isinstance(run.model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert run.model.layers[0].compute_dtype == "float16"
    assert run.losses[-1] < run.losses[0]
    assert_replicas_agree(strategy, run.model.variables)


@cases("overflowing, params", (1, AUTO), (0, NONE), (0, WARM))
def test_a_step_that_overflows_on_one_replica_is_skipped_on_all(
    overflowing: int, params: CompressionParams
) -> None:
    strategy = compressed_strategy(2, params)
    model = compiled(strategy, _float16, _scaled_sgd)
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


@cases("params", AUTO, NONE, SMALL)
def test_layers_of_double_and_of_single_precision_train_together(params: CompressionParams) -> None:
    """The stock strategy cannot do that: it concatenates all gradients."""

    def build() -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((FEATURES,)),
                keras.layers.Dense(16, activation="relu", dtype="float64"),
                keras.layers.Dense(CLASSES, dtype="float32"),
            ]
        )

    strategy = compressed_strategy(2, params)
    run = fit(strategy, build)
    assert run.losses[-1] < 0.9 * run.losses[0]
    assert_replicas_agree(strategy, run.model.trainable_variables)
    assert len(strategy.compression_state) == (2 if params is AUTO else 0)


@matrix
def test_a_model_of_double_precision_equals_stock_to_the_bit() -> None:
    build = functools.partial(_mlp, "float64")
    strategy = compressed_strategy()
    assert_same_run(fit(strategy, build), fit(stock_strategy(), build))
    assert len(strategy.compression_state) == 0
