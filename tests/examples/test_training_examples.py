"""The training examples run as the README shows them, and write what they are asked for."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from examples import local_workers
from tests import programs
from tests.cases import matrix
from tests.fork_server import FORK_SERVER, Task
from tests.multiworker import cluster

EXAMPLES = programs.ROOT / "examples"
PROGRAMS = sorted({path.name for path in EXAMPLES.glob("*.py")} - {"extras.py", "local_workers.py"})


def run(example: str, *arguments: str, new: bool = False, status: int = 0) -> str:
    """Returns what the example prints."""
    return programs.output_of(EXAMPLES / example, *arguments, new=new, status=status)


def number(name: str, output: str) -> float:
    """The number on a line of the summary."""
    found = re.search(rf"^{name} +([\d.]+)", output, re.MULTILINE)
    assert found, output
    return float(found[1])


def ratio(output: str) -> float:
    """How many times fewer bytes than uncompressed."""
    found = re.search(r"^bytes per step and replica .* \(([\d.]+) x\)", output, re.MULTILINE)
    assert found, output
    return float(found[1])


@pytest.fixture
def language(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module word_language_model."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("word_language_model")


def test_digits_are_learned_and_files_written(tmp_path: Path) -> None:
    plot, log = tmp_path / "curves.png", tmp_path / "log"
    options = ["--compression=1bit", "--optimizer=adam"]  # the defaults are in the test of workers
    arguments = [*options, "--epochs=3", f"--plot={plot}", f"--tensorboard={log}"]
    output = run("train_mnist.py", *arguments)
    assert "2 replicas, OneBit(threshold='auto'" in output
    assert "scikit-learn's digits: 1,347 training and 450 test images" in output
    assert "Epoch 3/3" in output
    assert number("test accuracy", output) > 0.85
    assert ratio(output) > 17
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert list(log.glob("train/events*"))
    assert list(log.glob("validation/events*"))


@matrix
def test_a_cnn_with_sgd_and_without_compression() -> None:
    arguments = ["--network=cnn", "--compression=none", "--optimizer=sgd", "--epochs=5"]
    output = run("train_mnist.py", *arguments)
    assert number("test accuracy", output) > 0.6
    assert "bytes per step and replica  not compressed" in output


@matrix
def test_a_fixed_threshold_reaches_the_codec() -> None:
    output = run(
        *("train_mnist.py", "--compression=2bit", "--threshold=0.25"),
        *("--replicas=3", "--epochs=1", "--batch-size=128"),
        new=True,
    )
    assert "3 replicas, TwoBit(threshold=0.25" in output


@matrix
@pytest.mark.multiworker
def test_workers_fall_back_to_digits_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A proxy that nobody listens on is a network without MNIST.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))  # where it is not yet
    output = run("train_mnist.py", "--data=mnist", "--strategy=multi_worker", "--epochs=2")
    assert "scikit-learn's digits (MNIST could not be downloaded)" in output
    assert "2 replicas, Quantized(bits=3" in output
    assert number("test accuracy", output) > 0.6
    assert ratio(output) > 8
    assert output.count("Epoch 2/2") == 1, "not one progress bar"


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_example_without_scikit_learn_says_what_to_install(program: str) -> None:
    # -S hides what is installed.
    done = subprocess.run(
        [sys.executable, "-S", EXAMPLES / program], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 1
    assert re.fullmatch(
        r"the examples need .*scikit-learn: pip install '\.\[examples\]'\n", done.stderr
    )


def test_options_that_exclude_each_other() -> None:
    assert "--threshold is for" in run(
        "train_mnist.py", "--compression=none", "--threshold=1", status=2
    )


@pytest.mark.parametrize("program", ["train_mnist.py", "multi_worker.py"])
def test_a_threshold_out_of_range(program: str) -> None:
    output = run(program, "--compression=2bit", "--threshold=-1", status=2)
    assert "error: --threshold" in output
    assert "-1" in output


def test_a_rank_out_of_range() -> None:
    output = run("train_mnist.py", "--compression=low_rank", "--rank=65", status=2)
    assert "error: --rank: rank must be from 1 to 64, got 65" in output
    assert "--rank is for" in run("train_mnist.py", "--rank=4", status=2)


@matrix
def test_the_language_model_learns_a_text(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Every good boy does fine, and all cows eat grass.\n" * 200)
    output = run(
        "word_language_model.py",
        *(f"--text={text}", "--hidden=48", "--epochs=5", "--window=8", "--dropout=0"),
        *("--start=every good", "--words=10"),
    )
    # A word that says which one comes next: a perplexity of 1 is all there is to learn.
    assert 1 <= number("test perplexity", output) < 1.5
    assert ratio(output) > 1
    assert "every good boy does fine, and all cows eat grass." in output


@matrix
@pytest.mark.multiworker
def test_the_language_model_on_two_workers(tmp_path: Path) -> None:
    arguments = [
        *("--strategy=multi_worker", "--hidden=16", "--epochs=1", "--batch-size=1024"),
        *("--words=5", "--vocabulary=100"),
    ]
    command = [str(EXAMPLES / "word_language_model.py"), *arguments]
    logs = [tmp_path / "log0", tmp_path / "log1"]
    tasks = [
        Task(programs.SCRIPT, command, local_workers.environment(config), str(log))
        for config, log in zip(cluster.tf_configs(2), logs, strict=True)
    ]
    codes, _ = FORK_SERVER.run(tasks, limit=600)
    output, other_output = (log.read_text() for log in logs)
    assert codes == [0, 0], output + other_output
    assert not re.search("perplexity|the value of", other_output), "two that show results"
    assert re.search(r"Python's documentation topics: [\d,]+ words and signs, 99 in", output)
    assert 1 < number("test perplexity", output) < 101
    assert "the value of" in output.splitlines()[-1]


def test_words_and_signs(language: ModuleType) -> None:
    words = language.split_words("It's done:\n*****\n(Done, x_1!)\n")
    assert words == ["it's", "done", ":", "(", "done", ",", "x_1", "!", ")"]
    assert language.make_vocabulary(words, 10) == ["<unk>", "done"]
    assert language.numbers_of(words, ["<unk>", "done"]).tolist() == [0, 1, 0, 0, 1, 0, 0, 0, 0]


def test_labels_are_the_next_words(language: ModuleType) -> None:
    words = [str(number % 7) for number in range(100)]
    vocabulary = language.make_vocabulary(words, 10)
    train, test = language.make_sequences(words, vocabulary, window=4)
    assert train[0].shape == (22, 4)
    assert test[0].shape == (2, 4)
    for inputs, labels in (train, test):
        np.testing.assert_array_equal(inputs.ravel()[1:], labels.ravel()[:-1])
    with pytest.raises(SystemExit, match="too short"):
        language.make_sequences(words, vocabulary, window=50)


def test_perplexity_is_the_exponential_of_the_loss(language: ModuleType) -> None:
    metric = language.Perplexity()
    logits = np.log(np.array([[0.25, 0.75], [0.5, 0.5]], np.float32))
    metric.update_state(np.array([0, 1]), logits)
    np.testing.assert_allclose(metric.result(), (1 / 0.25 / 0.5) ** 0.5, rtol=1e-6)
