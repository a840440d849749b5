"""Images of handwritten digits, on several replicas or workers, with compressed gradients.

Trains on scikit-learn's digits (1,797 images of 8 by 8 pixels that ship with the package), or on
MNIST (70,000 of 28 by 28), which Keras downloads:

    python examples/train_mnist.py
    python examples/train_mnist.py --data mnist --network cnn --optimizer adam
    python -m tf_gc.launch --workers 2 examples/train_mnist.py --plot curves.png
"""

import argparse
import contextlib
import socket
import sys
from collections.abc import Iterator

import training  # in this folder; before Keras, which it sets up

# isort: split
import keras
import numpy as np
from digits import load_digits

OPTIMIZERS = {
    "momentum": lambda rate: keras.optimizers.SGD(rate or 0.05, momentum=0.9),
    "sgd": lambda rate: keras.optimizers.SGD(rate or 0.2),
    "adam": lambda rate: keras.optimizers.Adam(rate or 1e-3),
}
DOWNLOAD_TIMEOUT = 20  # seconds without an answer


def main() -> None:
    parser = training.make_parser(__doc__.split("\n")[0], list(OPTIMIZERS))
    parser.add_argument("--data", choices=["digits", "mnist"], default="digits")
    parser.add_argument("--network", choices=["mlp", "cnn"], default="mlp")
    options = training.parse(parser)
    strategy = training.make_strategy(options)
    train_data, test_data = load(options, strategy)
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        model = make_model(options.network, train_data[0].shape[1:])
        model.compile(
            optimizer=OPTIMIZERS[options.optimizer](options.learning_rate),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    training.fit(model, strategy, train_data, test_data, options)


def load(
    options: argparse.Namespace, strategy: training.Strategy
) -> tuple[training.Split, training.Split]:
    """Returns (train, test), images of shape [n, height, width, 1] in [0, 1]; says which."""
    splits = None
    if options.data == "mnist":
        if strategy.is_chief:
            splits = download_mnist()
        training.any_replica(strategy, False)  # others wait: they may share the chief's cache
        if not strategy.is_chief:
            splits = download_mnist()
        # All workers train on the same.
        if training.any_replica(strategy, splits is None):
            splits = None
    if splits is not None:
        name = "MNIST"
        splits = tuple((images / np.float32(255), labels) for images, labels in splits)
    else:
        name = "scikit-learn's digits"
        splits = tuple((x.reshape(-1, 8, 8), y) for x, y in load_digits(options.seed))
    (x, y), (x_test, y_test) = splits
    if strategy.is_chief:
        missing = options.data == "mnist" and name != "MNIST"
        name += " (MNIST could not be downloaded)" if missing else ""
        print(f"{name}: {len(x):,} training and {len(x_test):,} test images", flush=True)
    return (x[..., None], y), (x_test[..., None], y_test)


def download_mnist() -> tuple[training.Split, training.Split] | None:
    """Returns MNIST as Keras does, from its cache if it is there; None if that fails."""
    try:
        with answer_within(DOWNLOAD_TIMEOUT):
            return keras.datasets.mnist.load_data()
    except Exception as error:  # Keras raises just that
        print(f"MNIST: {error}", file=sys.stderr)
        return None


@contextlib.contextmanager
def answer_within(seconds: float) -> Iterator[None]:
    """Limits how long a network that drops packets is waited for."""
    previous = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(previous)


def make_model(network: str, shape: tuple[int, ...]) -> keras.Model:
    """Returns the network for images of this shape, with ten logits."""
    layers = keras.layers
    model = keras.Sequential([keras.Input(shape)])
    if network == "cnn":
        for filters in (32, 64):
            model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
            model.add(layers.MaxPooling2D())
        model.add(layers.Flatten())
    else:
        model.add(layers.Flatten())
        model.add(layers.Dense(512, activation="relu"))
    model.add(layers.Dense(128, activation="relu"))
    model.add(layers.Dense(10))
    return model


if __name__ == "__main__":
    main()
