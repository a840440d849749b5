"""Handwritten digits on the workers of a Ray cluster, with compressed gradients.

    pip install "ray[train]"
    python examples/ray_train.py --workers 2 --storage /a/folder/that/all/hosts/see

If a worker dies, Ray starts all of them again, and training goes on from the last backup, with what
had not been sent yet. Ray Train trains in a thread, in which Python cannot watch SIGTERM; the log
says so.
"""

import argparse
import os
import sys
import tempfile
from typing import Any

import extras  # noqa: F401  (in this folder; what is missing is said first)
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, report
from ray.train.tensorflow import TensorflowTrainer

EXAMPLES = os.path.dirname(os.path.abspath(__file__))


def train(config: dict[str, Any]) -> None:
    """Trains, as each worker does; Ray has set TF_CONFIG."""
    sys.path.insert(0, EXAMPLES)
    import keras
    from digits import load_digits, make_model

    import tf_gc

    # Before anything that runs on TensorFlow. It waits until all workers are there.
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    train_data, test_data = load_digits(config["seed"])
    keras.utils.set_random_seed(config["seed"])
    with strategy.scope():
        model = make_model()
    shown = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: print(f"epoch {epoch}, process {os.getpid()}")
    )
    model.fit(
        *train_data,
        batch_size=64,
        epochs=config["epochs"],
        callbacks=[tf_gc.keras.BackupAndRestore(config["backup"]), shown],
        verbose=0,
    )
    _, accuracy = model.evaluate(*test_data, batch_size=64, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        model.save(os.path.join(folder, "digits.keras"))  # all workers; the chief's file is kept
        saved = Checkpoint.from_directory(folder) if strategy.is_chief else None
        report({"accuracy": accuracy, "bytes": strategy.traffic.sent_bytes}, checkpoint=saved)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--storage", default=tempfile.gettempdir(), help="what all hosts see")
    options = parser.parse_args()
    storage = os.path.join(os.path.abspath(options.storage), "tf_gc_digits")
    trainer = TensorflowTrainer(
        train,
        train_loop_config={**vars(options), "backup": os.path.join(storage, "backup")},
        scaling_config=ScalingConfig(num_workers=options.workers),
        run_config=RunConfig(
            name="digits", storage_path=storage, failure_config=FailureConfig(max_failures=3)
        ),
    )
    result = trainer.fit()
    print(f"model: {result.checkpoint}")
    print(
        f"test accuracy: {result.metrics['accuracy']:.4f}, {result.metrics['bytes']:,} bytes a step"
    )


if __name__ == "__main__":
    main()
