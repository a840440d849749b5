"""Training goes on when workers are killed: the launcher, backups and strategies together."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import cases
from tests.multiworker import cluster
from tests.programs import ROOT

pytestmark = pytest.mark.multiworker

EPOCHS = 4


class Garbage:
    """Notes that it is collected, as nothing is where a program ends with an error."""

    def __init__(self, note: Path) -> None:
        self.itself, self.note = self, note

    def __del__(self) -> None:
        self.note.touch()


def train(folder: str, *victims: str) -> None:
    """In epoch i+1 of a job's life, the i-th victim kills itself once.

    With the victim "1 later", worker 1 fails once after `fit`.
    """
    import keras

    import tf_gc
    from tests.keras import stock

    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params={"type": "none"})
    index = str(strategy.cluster_resolver.task_id)

    def die(epoch: int, logs: object) -> None:
        died = Path(folder, f"died{epoch}")
        if epoch - 1 in range(len(victims)) and index == victims[epoch - 1] and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    model = stock.compiled(strategy, optimizer=lambda: keras.optimizers.SGD(0.1, momentum=0.9))
    callbacks = [
        tf_gc.keras.BackupAndRestore(Path(folder, "backup")),
        keras.callbacks.LambdaCallback(on_epoch_begin=die),
    ]
    options = {"verbose": 0, "shuffle": False, "callbacks": callbacks}
    trained = model.fit(*stock.data(), stock.BATCH, EPOCHS, **options).epoch
    with Path(folder, f"trained{index}").open("a") as file:
        print(trained, file=file)
    if f"{index} later" in victims and not Path(folder, "failed").exists():
        Path(folder, "failed").touch()
        keras.garbage = Garbage(Path(folder, "collected"))
        raise MemoryError
    weights = [weight.tolist() for weight in model.get_weights()]
    Path(folder, f"weights{index}").write_text(json.dumps(weights))


def weights_after(folder: Path, *victims: str) -> tuple[str, str]:
    """Returns the launcher's lines, and the weights, which are the same on both workers."""
    folder.mkdir()
    command = [sys.executable, "-m", "tf_gc.launch", "--workers=2", "--restarts=6"]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    done = subprocess.run(
        [*command, __file__, str(folder), *victims],
        env={**environment, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=1000,
    )
    assert done.returncode == 0, done.stderr
    (weights,) = {path.read_text() for path in folder.glob("weights?")}
    return done.stderr, weights


@cases("victims", ["0"], ["1", "0", "1"])
def test_training_goes_on_after_kills_and_ends_with_the_same_bits(
    tmp_path: Path, victims: list[str]
) -> None:
    said, weights = weights_after(tmp_path / "killed", *victims)
    for victim in victims:
        assert f"worker {victim} was killed by SIGKILL" in said
    assert not (tmp_path / "killed" / "backup").exists()
    (quiet := tmp_path / "quiet").mkdir()
    cluster.values(train, str(quiet), optimized=True)
    assert {path.read_text() for path in quiet.glob("weights?")} == {weights}


def test_a_failure_after_fit_trains_nothing_again(tmp_path: Path) -> None:
    said, _ = weights_after(tmp_path / "job", "1 later")
    assert "worker 1 exited with 1 (MemoryError) after" in said
    assert "is of the end of this training: nothing is left" in said
    job = tmp_path / "job"
    for worker in range(2):
        assert (job / f"trained{worker}").read_text() == f"{[*range(EPOCHS)]}\n[]\n"
    assert not (job / "backup").exists()
    assert not (job / "collected").exists()


def test_a_program_that_replaces_its_tf_config_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        addresses = [f"127.0.0.1:{taken.getsockname()[1]}", "127.0.0.1:9"]
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 0}}
        program = tmp_path / "program.py"
        program.write_text(
            f"import os\nos.environ['TF_CONFIG'] = {json.dumps(config)!r}\n"
            "import tf_gc\ntf_gc.CompressedMultiWorkerMirroredStrategy()\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "tf_gc.launch", "--workers=1", str(program)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=1000,
            check=False,
        )
    assert done.returncode == 1
    assert (
        'overwritten the TF_CONFIG with which it was started, as by the launcher: {"' in done.stderr
    )


if __name__ == "__main__":
    train(*sys.argv[1:])
