"""`python -m tf_gc.planner`: flags, errors, output."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from tests import programs
from tf_gc.planner import forecast
from tf_gc.planner.__main__ import main, parse
from tf_gc.planner.prediction import CHOICES, STOCK, Choice, Prediction
from tf_gc.planner.subject import UsageError, load_function, make_subject

MODELS = """
import keras
import numpy as np
import neighbour

def mlp():
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(96), keras.layers.Dense(10)])

def compiled():
    model = mlp()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model

def batch(size):
    return np.ones((size, 64), np.float32), np.ones(size, np.int32)

def no_such_key(size):
    return {}["x"]

def inputs_only(size):
    return np.ones((size, 64), np.float32)

def wrong_shape(size):
    return np.ones((size, 63), np.float32), np.ones(size, np.int32)

def two_inputs():
    words = keras.Input((3,), dtype="int32", name="words")
    mask = keras.Input((3,), dtype="bool", name="mask")
    rows = keras.layers.Flatten()(keras.layers.Embedding(2, 4)(words))
    told = keras.layers.Dense(2)(keras.ops.cast(mask, "float32"))
    return keras.Model({"words": words, "mask": mask}, [rows, told])

def unknown_length():
    layers = [keras.layers.GlobalMaxPooling1D(), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((None, 4)), *layers])

def strings():
    text = keras.Input((1,), dtype="string")
    words = keras.layers.StringLookup(vocabulary=["a"])(text)
    return keras.Model(text, keras.layers.Embedding(2, 4)(words))

class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)

    def call(self, x):
        return self.dense(x)

def subclassed():
    return Subclassed()

def subclassed_compiled():
    model = Subclassed()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model

def without_weights():
    return keras.Sequential([keras.Input((4,)), keras.layers.ReLU()])

def number():
    return 3

def broken():
    raise KeyError("layer")
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "neighbour.py").write_text("")
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path / "models.py"


def subject_of(models: Path, model: str, batch: str | None = None):
    make_batch = load_function(f"{models}:{batch}", "--batch") if batch else None
    return make_subject(load_function(f"{models}:{model}", "--model"), 5, make_batch)


def test_the_program_runs(
    models: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = models.with_name("plan.png")
    flags = f"--model {models}:mlp --workers 1 2 64 --rate 100mbit 10gbit --repeats 1"
    monkeypatch.delitem(sys.modules, "tf_gc.planner.__main__")
    monkeypatch.setattr(sys, "argv", ["planner", *flags.split(), "--plot", str(picture)])
    runpy.run_module("tf_gc.planner", run_name="__main__", alter_sys=True)
    output = capsys.readouterr().out
    assert "7,210 elements of dense gradients" in output
    lines = [line.split() for line in output.splitlines() if re.match(r" +\d+  +1", line)]
    assert [(line[0], *line[1:3]) for line in lines] == [
        (workers, rate, unit)
        for workers in ("1", "2", "64")
        for rate, unit in (("100", "Mbit/s"), ("10", "Gbit/s"))
    ]
    assert "With 64 workers, 3 bits" in output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_batch_of_the_users_own(models: Path, capsys: pytest.CaptureFixture) -> None:
    flags = f"--model {models}:compiled --batch {models}:batch --batch-size 3 --repeats 1"
    main(flags.split())
    assert "with batch size 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "batch"),
    [("two_inputs", None), ("subclassed_compiled", "batch"), ("compiled", "batch")],
)
def test_models_that_it_takes(models: Path, model: str, batch: str | None) -> None:
    assert subject_of(models, model, batch).forward().shape == ()


@pytest.mark.parametrize(
    ("model", "batch", "message"),
    [
        ("nothing", None, "has no function 'nothing', only .*'mlp'"),
        ("broken", None, "make_model raised KeyError: 'layer'"),
        ("number", None, "make_model must return a Keras model, got int"),
        ("unknown_length", None, r"has the shape \(None, None, 4\): only the first .* --batch"),
        ("strings", None, "is of string, for which there are no random values: give --batch"),
        ("subclassed", None, "does not say which inputs it takes: begin it with keras.Input"),
        ("without_weights", None, "has no trainable weights"),
        ("mlp", "batch", "make_model must compile its model with a loss"),
        ("compiled", "no_such_key", "make_batch raised KeyError: 'x'"),
        ("compiled", "inputs_only", r"make_batch must return a tuple \(x, y\), got ndarray"),
        ("compiled", "wrong_shape", "the model, called with the batch, raised "),
    ],
)
def test_models_that_it_does_not_take(
    models: Path, model: str, batch: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        subject_of(models, model, batch)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model.py", "--model is like model.py:make_model, got 'model.py'"),
        ("model:make", "--model is like model.py:make_model, got 'model:make'"),
        ("none.py:make", "--model: there is no file none.py"),
    ],
)
def test_wrong_names_of_functions(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_function(text, "--model")


def test_a_file_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "model.py"
    path.write_text("1 / 0")
    with pytest.raises(UsageError, match=r"model\.py raised ZeroDivisionError: division by zero"):
        load_function(f"{path}:make", "--model")
    with pytest.raises(SystemExit, match="error: --model: "):
        main(["--model", f"{path}:make"])
    assert f'"{path}", line 1' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "required: --model"),
        ("--workers 0", "must be a whole number from 1, not '0'"),
        ("--batch-size x", "must be a whole number from 1, not 'x'"),
        ("--rate 1", 'a rate is like "100mbit" or "2.5gbit" (kbit, mbit, gbit), not \'1\''),
        ("--rate 0gbit", "a rate is like"),
        ("--transport fast", "a rate is like"),
        ("--latency -1", "must be a number of milliseconds from 0, not '-1'"),
        ("--launch inf", "must be a number of milliseconds from 0, not 'inf'"),
        ("--slowdown 0.9", "--slowdown must be a number from 1, not 0.9"),
        ("--workers 1", "--workers needs a number from 2"),
        ("--plot no_such_folder/plan.png", "--plot: there is no folder no_such_folder"),
    ],
)
def test_wrong_flags(flags: str, message: str, capsys: pytest.CaptureFixture) -> None:
    model = ["--model", "model.py:make"] if flags else []
    with pytest.raises(SystemExit) as ended:
        parse([*model, *flags.split()])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_units() -> None:
    flags = "--model m.py:f --rate 1.5mbit --transport none --latency 2 --launch 0"
    options = parse(flags.split())
    assert (options.rate, options.transport) == ([1.5e6], 0)
    assert (options.latency, options.launch) == (2e-3, 0)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit):
        parse(["--model", "model.py:make", "--plot", "plan.png"])
    assert "--plot needs matplotlib: pip install matplotlib" in capsys.readouterr().err


def forecast_of(seconds_of_ours: float, rates: tuple[float, ...] = (1e9,)) -> forecast.Forecast:
    """A forecast: the stock step takes 1 s of computing, and 1 s at 1 Gbit/s for sending."""

    def predict(choice: Choice, workers: int, rate: float) -> Prediction:
        del workers
        if choice == STOCK:
            return Prediction(1 + 1e9 / rate, 1.0, ())
        return Prediction(seconds_of_ours, 1.0, ("all_gather",))

    return forecast.Forecast(CHOICES, (2,), rates, predict)


def test_words_say_where_it_pays() -> None:
    # 1 + 1e9 / rate = 1.1 · 1.5 at 1.54e9, which lies between two of the points that are tried.
    limit = forecast_of(1.5).fastest_link_that_pays(CHOICES[2], 2)
    assert limit == pytest.approx(1e9 / 0.65, rel=0.08)
    assert "With 2 workers, 3 bits pay on links of up to about 1.4 Gbit/s" in forecast.words(
        forecast_of(1.5)
    )
    assert "pay on every link, however fast" in forecast.words(forecast_of(0.5))
    assert "pay on no link" in forecast.words(forecast_of(1e4))
    assert "At 1 Gbit/s a step takes 1.50 s instead of 2.00 s." in forecast.words(forecast_of(1.5))
    assert "which is no reason to compress" in forecast.words(forecast_of(1.95))


def test_words_for_what_is_not_compressed() -> None:
    nothing = forecast.Forecast(CHOICES, (1, 2), (1e9,), lambda *_: Prediction(1.0, 1.0, ()))
    said = forecast.words(nothing)
    assert "1 worker sends nothing" in said
    assert "With 2 workers, 3 bits compress nothing: no dense gradient is large enough" in said


@pytest.mark.parametrize(
    ("rate", "text"),
    [(1e8, "100 Mbit/s"), (2.5e9, "2.5 Gbit/s"), (1e3, "1 kbit/s"), (1e12, "1 Tbit/s")],
)
def test_rates_in_words(rate: float, text: str) -> None:
    assert forecast.rate_in_words(rate) == text


def test_importing_tf_gc_does_not_import_the_planner(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys, tf_gc; sys.exit('tf_gc.planner' in sys.modules)")
    programs.output_of(program)
