"""`python -m tf_gc.planner`: flags, errors, output."""

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tf_gc.planner import forecast, measure
from tf_gc.planner.__main__ import main, parse
from tf_gc.planner.prediction import STOCK, Prediction
from tf_gc.planner.workload import UsageError, Workload, load_function, make_workload

MODELS = """
import keras
import numpy as np
import neighbour

def mlp():
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(96), keras.layers.Dense(10)])

def compiled(model=None):
    model = model or mlp()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model

def batch(size):
    return np.ones((size, 64), np.float32), np.ones(size, np.int32)

def inputs_only(size):
    return np.ones((size, 64), np.float32)

class Narrow(keras.layers.Dense):
    output_dim = 2  # and no input_dim, as a table has

def two_inputs():
    words = keras.Input((3,), dtype="int32", name="words")
    more = keras.Input((3,), name="more")
    larger = keras.layers.Embedding(9000, 4)(words)
    inner = keras.Sequential([keras.layers.Embedding(2, 4), keras.layers.Flatten()])
    outputs = [larger, inner(words), Narrow(2)(more)]
    return keras.Model({"words": words, "more": more}, outputs)

def unknown_length():
    layers = [keras.layers.GlobalMaxPooling1D(), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((None, 4)), *layers])

def strings():
    text = keras.Input((1,), dtype="string")
    words = keras.layers.StringLookup(vocabulary=["a"])(text)
    return keras.Model(text, keras.layers.Embedding(2, 4)(words))

class subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)

    def call(self, x):
        return self.dense(x)

def subclassed_compiled():
    return compiled(subclassed())

def without_weights():
    return keras.Sequential([keras.Input((4,)), keras.layers.ReLU()])

def number():
    return 3
"""

ONE_HOST = "--transport nccl --step-time 100 --gpus-per-host 8 --host-rate 12gbyte"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "neighbour.py").write_text("")
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path / "models.py"


def workload_of(models: Path, model: str, batch: str | None = None) -> Workload:
    make_batch = load_function(f"{models}:{batch}", "--batch") if batch else None
    return make_workload(load_function(f"{models}:{model}", "--model"), 5, make_batch)


def test_the_program_runs(
    models: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = f"--model {models}:compiled --batch {models}:batch --batch-size 3"
    flags += " --workers 2 64 --rate 100mbit 10gbit"
    monkeypatch.delitem(sys.modules, "tf_gc.planner.__main__")
    monkeypatch.setattr(sys, "argv", ["planner", *flags.split()])
    runpy.run_module("tf_gc.planner", run_name="__main__", alter_sys=True)
    output = capsys.readouterr().out
    assert "7,210 elements of dense gradients" in output
    times = re.findall(
        "with batch size 3: (.*) ms .forward (.*), backward (.*), update (.*)[)]", output
    )
    total, *parts = map(float, times[0])
    assert total == pytest.approx(sum(parts), abs=0.21)
    lines = [line.split() for line in output.splitlines() if re.match(r" +\d+  +[01]", line)]
    pairs = [(workers, rate) for workers in ("2", "64") for rate in ("0.1", "10")]
    assert [(line[0], line[1]) for line in lines] == pairs
    assert "With 64 workers, 3 bits" in output


@pytest.mark.parametrize(
    ("model", "batch"), [("two_inputs", None), ("mlp", None), ("subclassed_compiled", "batch")]
)
def test_models_that_it_takes(models: Path, model: str, batch: str | None) -> None:
    assert workload_of(models, model, batch).forward().shape == ()


@pytest.mark.parametrize(
    ("model", "batch", "message"),
    [
        ("nothing", None, "--model: .* has no function 'nothing'"),
        ("number", None, "make_model must return a Keras model, got int"),
        ("unknown_length", None, r"has the shape \(None, None, 4\): .*only the first .* --batch"),
        ("strings", None, "is of string .*give --batch"),
        ("subclassed", None, "does not say which inputs it takes: begin it with keras.Input"),
        ("without_weights", None, "has no trainable weights"),
        ("mlp", "batch", "make_model must compile its model with a loss"),
        ("compiled", "inputs_only", r"make_batch must return a tuple \(x, y\), got ndarray"),
    ],
)
def test_models_that_it_does_not_take(
    models: Path, model: str, batch: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        workload_of(models, model, batch)


def test_wrong_names_of_functions() -> None:
    for text in ("model.py", "model:make"):
        with pytest.raises(UsageError, match=f"--model is like model.py:make_model, got '{text}'"):
            load_function(text, "--model")
    with pytest.raises(SystemExit, match=r"error: --model: there is no file none.py"):
        main(["--model", "none.py:make"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "required: --model"),
        ("--workers 0", "must be a whole number from 1, not '0'"),
        ("--batch-size x", "must be a whole number from 1, not 'x'"),
        ("--rate 1", "(kbit, mbit, gbit, mbyte, gbyte), not '1'"),
        ("--rate 0gbit", "a rate is like"),
        ("--transport fast", "is grpc, nccl, none or a rate, not 'fast'"),
        ("--latency -1", "must be a number of milliseconds from 0, not '-1'"),
        ("--launch inf", "must be a number of milliseconds from 0, not 'inf'"),
        ("--workers 2 1", "--workers needs numbers from 2"),
        ("--step-time 1 2", "--step-time takes 1 or 3 numbers, not 2"),
        ("--copy-rate 900gbyte", "--copy-rate needs --step-time"),
        ("--gpus-per-host 4 --host-rate 12gbyte", "--gpus-per-host 4 needs --step-time"),
        ("--gpus-per-host 4 --step-time 9", "--gpus-per-host 4 needs --host-rate"),
        ("--host-rate 12gbyte", "--host-rate needs --gpus-per-host from 2"),
        (f"--workers 1 2 {ONE_HOST}", "--workers 1 has another rate: ask for it alone"),
        (f"--workers 1 --rate 1gbit {ONE_HOST}", "give --host-rate, not --rate"),
        (f"--workers 1 {ONE_HOST} --transport grpc", "--workers 1 needs --transport nccl"),
        ("--plot no/a.png", "is a FILE.png in a folder that exists, not 'no/a.png'"),
    ],
)
def test_wrong_flags(flags: str, message: str, capsys: pytest.CaptureFixture) -> None:
    model = ["--model", "model.py:make"] if flags else []
    with pytest.raises(SystemExit) as ended:
        parse([*model, *flags.split()])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_units() -> None:
    flags = "--model m.py:f --rate 1.5mbit 2gbit --transport 8kbit --latency 2 --launch 0.5"
    options = parse(flags.split())
    times = {"byte": 1e-3, "latency": 2e-3, "launch": 5e-4, "gpus": 1, "host_byte": 0}
    assert (options.rate, options.link) == ([1.5e6, 2e9], times)
    assert parse(["--model", "m.py:f", "--transport", "none"]).link["byte"] == 0
    one = parse(f"--model m.py:f --workers 1 {ONE_HOST} --launch 3".split())
    link = [one.link[name] for name in ("launch", "byte", "gpus", "host_byte")]
    assert (one.rate, link) == ([96e9], [3e-3, 0, 8, 8 / 96e9])


def predicting(seconds_of_ours: float) -> forecast.Predict:
    """The stock step takes 1 s of computing, and 1 s at 1 Gbit/s for sending."""

    def predict(params: Any, workers: int, rate: float) -> Prediction:
        del workers
        if params == STOCK:
            return Prediction(1 + 1e9 / rate, 1)
        return Prediction(seconds_of_ours, 1, ("all_gather, packed",))

    return predict


def test_words_say_where_it_pays() -> None:
    # 1 + 1e9 / rate = 1.1 · 1.5 at 1.54e9, which lies between two of the points that are tried.
    said = forecast.words(predicting(1.5), [2])
    assert "With 2 workers, 3 bits pay on links of up to about 1.4 Gbit/s; against 16 bits," in said
    assert "pay on every link, however fast" in forecast.words(predicting(0.5), [2])
    assert "pay on no link" in forecast.words(predicting(1e4), [2])
    said = forecast.words(lambda *_: Prediction(1.0, 1), [2])
    assert "With 2 workers, 3 bits compress nothing: no gradient is large enough" in said


def test_the_table_has_times_and_ratios_to_stock() -> None:
    header, line = forecast.table(predicting(0.5), [2], [1e9]).splitlines()
    names = [*forecast.BASES, *forecast.CHOICES, "plan, wire"]
    assert re.split(" {2,}", header.strip())[2:] == names
    ours = len(forecast.CHOICES) * "     500.0 ms  4.0/1.0x"
    assert line.endswith("2.00 s     500.0 ms" + ours + "  all_gather, packed")


def test_the_table_says_which_bits_take_which_plan() -> None:
    def predict(params: Any, workers: int, rate: float) -> Prediction:
        del workers, rate
        wires = {forecast.CHOICES["1 bit"]: "packed", STOCK: ""}
        return Prediction(1, 1, 2 * (f"all_gather, {wires.get(params, 'compact')}",))

    line = forecast.table(predict, [2], [1e9]).splitlines()[-1]
    _, *more = forecast.CHOICES
    assert line.endswith(f"  1 bit: all_gather, packed; {', '.join(more)}: all_gather, compact")


def test_a_profile_of_a_gpu_needs_no_gpu_and_measures_nothing(
    models: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(measure, "_medians")
    flags = f"--model {models}:two_inputs --workers 2 --rate 1gbit {ONE_HOST}"
    main([*flags.split(), "--plot", f"{tmp_path}/a.png"])
    output = capsys.readouterr().out
    assert "2 sparse\na step alone, as given: 100.0 ms (forward 33.3, backward 66.7, upd" in output
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
