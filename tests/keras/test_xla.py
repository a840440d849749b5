"""`jit_compile=True`: XLA compiles each replica's step, and training goes as without it."""

import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases, matrix
from tests.keras.compressed import (
    AUTO,
    NONE,
    assert_replicas_agree,
    components,
    compressed_strategy,
)
from tests.keras.stock import (
    BATCH,
    CLASSES,
    FEATURES,
    assert_same_weights,
    compiled,
    cross_entropy,
    data,
    mlp,
)
from tf_gc import _compat

ROWS = 40  # the last batch has 8
X, Y = data(ROWS)
WORDS = np.random.default_rng(0).integers(0, 50, (ROWS, 6)).astype(np.int32)
WEIGHTS = np.random.default_rng(1).random(ROWS).astype(np.float32)


class Probe(keras.layers.Layer):
    """Notes whether XLA compiles it; adds a loss, noise, a metric and a state."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.compiled: list[bool] = []
        self.seen = keras.metrics.Mean(name="seen")
        self.seeds = keras.random.SeedGenerator(4)

    def build(self, shape: Any) -> None:
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        graph = tf.compat.v1.get_default_graph()
        if tf.distribute.in_cross_replica_context():  # Keras builds the model
            return inputs
        self.compiled.append(bool(_compat.in_xla_context(graph)))
        self.add_loss(1e-2 * keras.ops.mean(keras.ops.square(inputs)))
        self.seen.update_state(keras.ops.mean(inputs))
        self.seeds.next()
        if training:
            self.calls.assign(self.calls + 1.0)
        return inputs


def everything() -> keras.Model:
    """Two inputs and outputs, a mask, a regularizer, moving statistics, and a `Probe`."""
    features = keras.Input((FEATURES,), name="features")
    words = keras.Input((6,), dtype="int32", name="words")
    rows = keras.layers.Embedding(50, 4, mask_zero=True)(words)
    state = keras.layers.LSTM(4, use_cudnn=False)(rows)  # in a loop
    x = Probe(name="probe")(keras.layers.Concatenate()([features, state]))
    x = keras.layers.Dense(8, activity_regularizer="l2", kernel_regularizer="l2")(x)
    x = keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.5)(x))
    heads = [keras.layers.Dense(n, name=name) for name, n in (("y", CLASSES), ("size", 1))]
    inputs = {"features": features, "words": words}
    return keras.Model(inputs, {head.name: head(x) for head in heads})


def mixed(policy: str) -> Callable[[], keras.Model]:
    layers = lambda: [keras.layers.Dense(n, dtype=policy) for n in (16, CLASSES)]  # noqa: E731
    return lambda: keras.Sequential([keras.Input((FEATURES,)), *layers()])


def gru() -> keras.Model:
    recurrent = [keras.layers.GRU(8, return_sequences=True), keras.layers.LSTM(8)]
    rows = [keras.Input((6,), dtype="int32"), keras.layers.Embedding(50, 8, mask_zero=True)]
    return keras.Sequential([*rows, *recurrent, keras.layers.Dense(CLASSES)])


SGD = keras.optimizers.SGD


@dataclasses.dataclass
class Case:
    build: Callable[[], keras.Model] = mlp
    optimizer: Callable[[], Any] = lambda: SGD(0.1)
    x: Any = dataclasses.field(default_factory=lambda: X)
    y: Any = dataclasses.field(default_factory=lambda: Y)
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    fit: dict[str, Any] = dataclasses.field(default_factory=dict)
    params: Any = AUTO
    clip_after_sum: bool = False
    only_losses: bool = False  # are nearly the same


CASES = {
    "everything": Case(
        everything,
        lambda: SGD(0.1, momentum=0.9, clipnorm=0.5, use_ema=True, ema_overwrite_frequency=4),
        {"features": X, "words": WORDS},
        {"y": Y, "size": X[:, :1]},
        {
            "loss": {"y": "sparse_categorical_crossentropy", "size": "mse"},
            "metrics": {"y": ["accuracy"], "size": []},
            "weighted_metrics": {"y": [], "size": ["mae"]},
            "steps_per_execution": 2,
        },
        {"sample_weight": {"y": WEIGHTS, "size": WEIGHTS}},
        tf_gc.Quantized(warm_up=False, bypass_size=0, sparse=True),
        clip_after_sum=True,
    ),
    "class weights": Case(fit={"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}}, params=NONE),
    "accumulated": Case(optimizer=lambda: keras.optimizers.Adam(gradient_accumulation_steps=2)),
    "scaled": Case(optimizer=lambda: keras.optimizers.LossScaleOptimizer(SGD(0.1), 64.0)),
    # Between 16-bit operations XLA rounds less often.
    "float16": Case(mixed("mixed_float16"), only_losses=True),
    "bfloat16": Case(mixed("mixed_bfloat16"), only_losses=True),
    "recurrent": Case(gru, x=WORDS),
    "one replica has no rows": Case(x=X[:33], y=Y[:33]),
    "warm-up": Case(params=tf_gc.TwoBit(bypass_size=0)),
}


def trained(case: Case, xla: bool) -> tuple[keras.Model, dict[str, Any]]:
    """Returns a model after `fit`, and all that it, `evaluate` and `predict` say."""
    strategy = compressed_strategy(params=case.params)
    strategy.clip_after_sum = case.clip_after_sum
    settings = {"metrics": ["accuracy"], **case.settings, "jit_compile": xla}
    settings["loss"] = settings.get("loss", cross_entropy())
    model = compiled(strategy, case.build, case.optimizer, **settings)
    options = {"batch_size": BATCH, "verbose": 0}
    history = model.fit(case.x, case.y, epochs=2, shuffle=False, **options, **case.fit).history
    assert_replicas_agree(strategy, model.trainable_variables)
    return model, {
        "history": history,
        "evaluated": model.evaluate(case.x, case.y, return_dict=True, **options),
        "predicted": model.predict(case.x, **options),
        "weights": model.get_weights(),
        "residuals": [left.numpy() for left in strategy.compression_state.variables],
        "traffic": strategy.traffic and (strategy.traffic.sent_bytes, strategy.traffic.wire),
    }


@cases("name", *CASES)
def test_training_goes_as_without_xla(name: str) -> None:
    case = CASES[name]
    (model, mine), (_, theirs) = (trained(case, xla) for xla in (True, False))
    assert model.jit_compile
    if name == "everything":
        assert "rows" in mine["traffic"][1]
        probe = model.get_layer("probe")
        assert probe.compiled
        assert all(probe.compiled)
    assert mine.pop("traffic") == theirs.pop("traffic")
    if case.only_losses:
        mine, theirs = mine["history"]["loss"], theirs["history"]["loss"]
    rtol = 0.05 if case.only_losses else 1e-3
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol, atol=1e-4), mine, theirs
    )


@pytest.mark.parametrize("size", [BATCH, None])
def test_predict_builds_a_model(size: int | None) -> None:
    build = lambda: keras.Sequential([keras.layers.BatchNormalization(), *mlp().layers])  # noqa: E731

    def predicted(xla: bool) -> Any:
        model = compiled(compressed_strategy(), build, jit_compile=xla)
        values = model.predict(X, size, verbose=0) if size else model.predict_on_batch(X)
        assert fitted(model)
        return values

    np.testing.assert_allclose(predicted(True), predicted(False), rtol=1e-4, atol=1e-5)


def test_a_function_that_xla_compiles_runs_in_each_replica() -> None:
    strategy = compressed_strategy(params=NONE)
    with strategy.scope():
        variable = tf.Variable(2.0)
    doubled = tf.function(lambda: 2 * variable, jit_compile=True)
    assert [*map(float, strategy.run(doubled).values)] == [4, 4]
    assert [*map(float, tf.function(lambda: strategy.run(doubled))().values)] == [4, 4]


def noisy() -> keras.Model:
    layers = [
        keras.layers.Dense(64, "relu"),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(CLASSES),
    ]
    return keras.Sequential([keras.Input((FEATURES,)), *layers])


def fitted(model: keras.Model, rows: int = 2 * BATCH, epochs: int = 1) -> list[float]:
    settings = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    return model.fit(X[:rows], Y[:rows], epochs=epochs, **settings).history["loss"]


def test_random_numbers_are_the_same_in_two_runs() -> None:
    models = [compiled(compressed_strategy(), noisy, jit_compile=True) for _ in range(2)]
    first, second = map(fitted, models)
    assert first == second
    assert_same_weights(*models)
    states = [seeds.state for model in models for seeds in model.layers[1]._seed_generators]
    assert states
    assert all((component == components(states[0])[0]).all() for component in components(states[0]))


class TwoOptimizers(keras.Model):
    """Whose step trains each layer by an optimizer of its own, from one or from two passes."""

    def __init__(self, passes: int) -> None:
        super().__init__()
        self.parts = [keras.layers.Dense(16, "relu"), keras.layers.Dense(CLASSES)]
        self.optimizers = [keras.optimizers.SGD(0.1), keras.optimizers.Adam()]
        self.passes = passes

    def build(self, shape: Any) -> None:
        self.parts[0].build(shape)
        self.parts[1].build((None, 16))
        self.built = True

    def call(self, inputs: Any) -> Any:
        return self.parts[1](self.parts[0](inputs))

    def gradients(self, x: Any, y: Any, part: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        return loss, tape.gradient(loss, part.trainable_variables)

    def train_step(self, data: Any) -> Any:
        gradients = []
        for part, optimizer in zip(self.parts, self.optimizers, strict=True):
            loss, of_part = self.gradients(*data, part)
            gradients.append((optimizer, of_part, part.trainable_variables))
            if self.passes == 2:
                self.apply(gradients)
        self.apply(gradients)
        return {"loss": loss}

    def apply(self, gradients: Any) -> None:
        while gradients:
            optimizer, of_part, variables = gradients.pop(0)
            optimizer.apply_gradients(zip(of_part, variables, strict=True))


class CompilesParts(TwoOptimizers):
    """As docs/training.md shows."""

    def gradients(self, x: Any, y: Any, part: Any) -> Any:
        @tf.function(jit_compile=True, autograph=False)
        def compiled() -> Any:
            return super(CompilesParts, self).gradients(x, y, part)

        return compiled()


def test_a_step_of_ones_own_is_compiled_or_refused_with_what_to_do() -> None:
    def losses(kind: type[TwoOptimizers], passes: int, xla: bool) -> list[float]:
        build = lambda: kind(passes)  # noqa: E731
        model = compiled(compressed_strategy(), build, jit_compile=xla)
        return fitted(model)

    np.testing.assert_allclose(
        losses(TwoOptimizers, 1, True), losses(TwoOptimizers, 1, False), rtol=1e-4
    )
    with pytest.raises(RuntimeError, match=r"uses .*dense.* after .* compile parts of it"):
        losses(TwoOptimizers, 2, True)
    np.testing.assert_allclose(
        losses(CompilesParts, 2, False), losses(TwoOptimizers, 2, False), rtol=1e-4
    )


class Unseeded(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs + keras.random.normal((FEATURES,))


class Texts(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs + keras.ops.cast(tf.strings.length(tf.strings.as_string(inputs)), "float32")


class InLoop(Texts):
    def call(self, inputs: Any) -> Any:
        (after,) = tf.while_loop(lambda _: True, super().call, [inputs], maximum_iterations=2)
        return after


def model_of(*layers: Any) -> Callable[[], keras.Model]:
    inputs = keras.Input((FEATURES,))
    return lambda: keras.Sequential([inputs, *(each() for each in layers), keras.layers.Dense(3)])


@pytest.mark.parametrize(
    ("layer", "error", "says"),
    [
        (lambda: Texts(name="texts"), ValueError, r"/texts.*/StringLength: compute it in the data"),
        (lambda: InLoop(name="loop"), ValueError, r"while/StringLength: compute it in the data"),
        (Unseeded, RuntimeError, "make it before, such as a keras.random.SeedGenerator"),
        (
            lambda: keras.layers.BatchNormalization(synchronized=True, name="normal"),
            ValueError,
            "BatchNormalization 'normal': pass synchronized=False to it, or pass jit_compile=False",
        ),
        (
            lambda: keras.layers.Hashing(5, name="hashes"),
            ValueError,
            r"XLA cannot compile Hashing 'hashes': compute it in the dataset's map\(\)",
        ),
    ],
    ids=["strings", "strings in a loop", "unseeded", "synchronized", "hashing"],
)
@pytest.mark.filterwarnings("ignore:Model doesn't support `jit_compile=True`")
def test_what_xla_cannot_compile_is_named(
    layer: Callable[[], Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        fitted(compiled(compressed_strategy(), model_of(layer), jit_compile=True))


def test_a_metric_made_outside_of_the_scope_is_named() -> None:
    metric = keras.metrics.SparseCategoricalAccuracy(name="outside")
    model = compiled(compressed_strategy(), metrics=[metric], jit_compile=True)
    with pytest.raises(
        RuntimeError, match="outside/count, outside/total: made outside of the scope"
    ):
        fitted(model)


@pytest.mark.filterwarnings("ignore:If `run_eagerly` is True")
def test_only_who_asks_for_it_gets_it(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    strategy = compressed_strategy()
    assert not compiled(strategy, jit_compile="auto").jit_compile
    assert not compiled(strategy, run_eagerly=True, jit_compile=True).jit_compile
    assert "XLA" not in caplog.text
    compiled(strategy, jit_compile=True).save(tmp_path / "model.keras")
    with strategy.scope():
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.jit_compile
    assert caplog.text.count("tf_gc: XLA compiles the steps of") == 2
    assert loaded.train_on_batch(X[:BATCH], Y[:BATCH])


def count(folder: str) -> None:
    """Trains for two epochs, each with a last batch of another size."""
    keras.utils.set_random_seed(1)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    fitted(compiled(compressed_strategy(), jit_compile=True), ROWS, epochs=2)
    print("modules", len({name.split(".")[0] for name in os.listdir(folder)}))


@matrix
def test_xla_compiles_once_for_each_replica_and_size_of_batch() -> None:
    with tempfile.TemporaryDirectory() as folder:
        flags = f"--xla_dump_to={folder} --xla_dump_hlo_module_re=.*compute.*"
        program = f"from tests.keras.test_xla import count; count({folder!r})"
        environment = {**os.environ, "XLA_FLAGS": flags}
        run = [sys.executable, "-c", program]
        output = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    assert "modules 4\n" in output.stdout
