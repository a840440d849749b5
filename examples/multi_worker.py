"""Handwritten digits on several workers, with compressed gradients and backups.

    python -m tf_gc.launch --workers 2 --restarts 3 examples/multi_worker.py
    sbatch examples/slurm.sbatch

docs/launch.md is about several hosts.
"""

import argparse
import sys

import training  # in this folder; before Keras, which it sets up

# isort: split
import keras
from digits import StepTimer, load_digits, make_model

import tf_gc


def main() -> None:
    options = parse_options()
    compression = {"type": options.compression}
    if options.threshold is not None:
        compression["threshold"] = options.threshold
    # Before anything that runs on TensorFlow. It waits until all workers are there.
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=compression)

    train_data, test_data = load_digits(options.seed)
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        model = make_model()
    callbacks = [timer := StepTimer()]
    if options.backup:
        callbacks.append(backup := tf_gc.keras.BackupAndRestore(options.backup))
    # All replicas get as many samples, so that all samples weigh the same.
    replicas = strategy.num_replicas_in_sync
    batch_size = -(-options.batch_size // replicas) * replicas
    # All workers have to make the same calls; one of them shows the progress.
    model.fit(
        *train_data,
        batch_size=batch_size,
        epochs=options.epochs,
        callbacks=callbacks,
        verbose=1 if strategy.is_chief else 0,
    )
    if options.backup and backup.preempted:
        sys.exit("told to stop; the next start goes on from the backup")
    _, accuracy = model.evaluate(*test_data, batch_size=batch_size, verbose=0)
    if strategy.is_chief:
        print(f"\n{replicas} replicas, {strategy.compression_params}")
        training.show("test accuracy", f"{accuracy:.4f}")
        training.show_cost(strategy, timer)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--compression", choices=["none", "quantized", "2bit", "bfloat16"], default="quantized"
    )
    parser.add_argument("--threshold", type=float, help="of 2bit: a number, instead of automatic")
    parser.add_argument("--epochs", type=int, default=20, help="at least 2 (default %(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="of all workers together")
    parser.add_argument("--backup", metavar="DIRECTORY", help="that all workers see")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.epochs < 2:
        parser.error("--epochs must be at least 2: the first is not timed")
    if options.threshold is not None and options.compression != "2bit":
        parser.error("--threshold is for --compression 2bit")
    if options.threshold is not None and not options.threshold > 0:
        parser.error(f"--threshold must be positive, not {options.threshold}")
    return options


if __name__ == "__main__":
    main()
