"""The training examples run as the README shows them, and write what they are asked for."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ports, programs
from tests.cases import matrix
from tests.fork_server import FORK_SERVER, Task
from tf_gc.launch.tasks import tasks_of

EXAMPLES = programs.ROOT / "examples"
PROGRAMS = sorted({path.name for path in EXAMPLES.glob("*.py")} - {"extras.py"})
RATIO = r"bytes per step and replica .* \("  # how many times fewer than uncompressed


def run(example: str, *arguments: str, new: bool = False, status: int = 0) -> str:
    return programs.output_of(EXAMPLES / example, *arguments, new=new, status=status)


def run_workers(folder: Path, example: str, *arguments: str) -> list[str]:
    """Runs the example as two workers, without the launcher; likewise."""
    logs = [folder / "log0", folder / "log1"]
    command = [str(EXAMPLES / example), *arguments]
    tasks = [
        Task(programs.SCRIPT, command, worker.environment(), str(log))
        for worker, log in zip(tasks_of({"worker": 2}, ports.addresses(2)), logs, strict=True)
    ]
    codes, _ = FORK_SERVER.run(tasks)
    outputs = [log.read_text() for log in logs]
    assert codes == [0, 0], "".join(outputs)
    return outputs


def number(name: str, output: str) -> float:
    found = re.search(rf"^{name} *([\d.]+)", output, re.MULTILINE)
    assert found, output
    return float(found[1])


def test_digits_are_learned_and_files_written(tmp_path: Path) -> None:
    plot, log = tmp_path / "curves.png", tmp_path / "log"
    options = ["--compression=1bit", "--optimizer=adam"]  # the defaults are in the test of workers
    arguments = [*options, "--epochs=3", f"--plot={plot}", f"--tensorboard={log}"]
    output = run("train_mnist.py", *arguments)
    assert "2 replicas, OneBit(threshold='auto'" in output
    assert "scikit-learn's digits: 1,347 training and 450 test images" in output
    assert "Epoch 3/3" in output
    assert number("test accuracy", output) > 0.85
    assert number(RATIO, output) > 17
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert list(log.glob("train/events*"))
    assert list(log.glob("validation/events*"))


@matrix
def test_a_cnn_with_sgd_and_without_compression() -> None:
    options = ["--network=cnn", "--compression=none", "--optimizer=sgd", "--replicas=1"]
    output = run("train_mnist.py", *options, "--epochs=5")
    assert "1 replicas, NoCompression" in output
    assert number("test accuracy", output) > 0.6
    assert "bytes per step and replica  not compressed" in output


@matrix
@pytest.mark.multiworker
def test_workers_fall_back_to_digits_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A proxy that nobody listens on is a network without MNIST.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))  # where it is not yet
    arguments = ["--data=mnist", "--epochs=2"]
    output, other_output = run_workers(tmp_path, "train_mnist.py", *arguments)
    assert "scikit-learn's digits (MNIST could not be downloaded)" in output
    assert "2 replicas, Quantized(bits=3" in output
    assert number("test accuracy", output) > 0.6
    assert number(RATIO, output) > 8
    assert (output + other_output).count("Epoch 2/2") == 1, "not one progress bar"


@matrix
@pytest.mark.multiworker
def test_workers_train_and_sum_up(tmp_path: Path) -> None:
    output, other_output = run_workers(tmp_path, "multi_worker.py", "--epochs=2")
    assert (output + other_output).count("Epoch 2/2") == 1, "not one progress bar"
    assert number(RATIO, output) > 5
    assert number("test accuracy", output) > 0.8
    assert "seconds per step" in output


@matrix
@pytest.mark.multiworker
@pytest.mark.parametrize("compression", ["quantized", "bfloat16"])
def test_workers_of_parameter_servers_train(compression: str) -> None:
    program = [sys.executable, "-m", "tf_gc.launch", "--workers=2", "--servers=1"]
    example = [EXAMPLES / "parameter_server.py", "--steps=400", f"--compression={compression}"]
    output = subprocess.check_output([*program, *example], text=True, timeout=600)
    assert "push, packed" in output
    assert "pull='delta': a worker pushes" in output
    assert number("steps", output) == 400
    assert number("test accuracy", output) > 0.85


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


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("train_mnist.py --compression=none --threshold=1", "--threshold is for"),
        ("train_mnist.py --compression=2bit --threshold=-1", "error: --threshold: .*-1"),
        ("multi_worker.py --compression=2bit --threshold=-1", "error: --threshold .*-1"),
        ("train_mnist.py --compression=low_rank --rank=65", "--rank: rank must be .* 64, got 65"),
        ("train_mnist.py --rank=4", "--rank is for"),
    ],
)
def test_options_out_of_range_or_that_exclude_each_other(command: str, said: str) -> None:
    output = run(*command.split(), status=2)
    assert re.search(said, output), output


@matrix
@pytest.mark.multiworker
def test_workers_learn_a_text(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Every good boy does fine, and all cows eat grass.\n" * 200)
    output, other_output = run_workers(
        tmp_path,
        "word_language_model.py",
        *(f"--text={text}", "--hidden=48", "--epochs=5", "--window=8"),
        *("--dropout=0", "--start=every good", "--words=10"),
    )
    # A word that says which one comes next: a perplexity of 1 is all there is to learn.
    assert 1 <= number("test perplexity", output) < 1.5
    assert number(RATIO, output) > 1
    assert "every good boy does fine, and all cows eat grass." in output
    assert not re.search("perplexity|every good boy", other_output), "two that show results"


def test_words_and_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    language = importlib.import_module("word_language_model")
    words = language.split_words("It's done:\n*****\n(Done, x_1!)\n")
    assert words == ["it's", "done", ":", "(", "done", ",", "x_1", "!", ")"]
    assert language.make_vocabulary(words, 10) == ["<unk>", "done"]
    assert language.numbers_of(words, ["<unk>", "done"]).tolist() == [0, 1, 0, 0, 1, 0, 0, 0, 0]
    topics = language.split_words(language.python_topics())
    assert len(topics) > 50_000
    assert len(language.make_vocabulary(topics, 100)) == 100
