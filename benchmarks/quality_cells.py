"""The cells of benchmarks/quality.py: which models are trained by which optimizers.

Fixed before anything was tuned. A third of the cells, one for each model, is set aside: they are
measured and reported, and nothing is ever chosen by them.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras

optimizers = keras.optimizers
Make = Callable[[float, int], keras.optimizers.Optimizer]


def _constant(optimizer: type, **arguments: Any) -> Make:
    """Returns a function that makes the optimizer with a constant learning rate."""
    return lambda rate, steps: optimizer(rate, **arguments)


def _muon(rate: float, steps: int) -> keras.optimizers.Optimizer:
    return optimizers.Muon(rate, adam_lr_ratio=0.2)


def _nesterov(rate: float, steps: int) -> keras.optimizers.Optimizer:
    schedule = optimizers.schedules.CosineDecay(rate, steps, alpha=0.01)
    return optimizers.SGD(schedule, momentum=0.9, nesterov=True)


_adam = functools.partial(_constant, optimizers.Adam)
_sgd = functools.partial(_constant, optimizers.SGD)

# By name: how to make it, and the learning rates to choose from, for uncompressed training.
OPTIMIZERS: dict[str, tuple[Make, tuple[float, ...]]] = {
    "SGD": (_sgd(), (0.1, 0.2, 0.5, 1.0)),
    "momentum": (_sgd(momentum=0.9), (0.02, 0.05, 0.1, 0.2)),
    "momentum, clipped": (_sgd(momentum=0.9, global_clipnorm=1.0), (0.1, 0.2, 0.5, 1.0)),
    "momentum, decayed weights": (
        _sgd(momentum=0.9, weight_decay=1e-3),
        (0.02, 0.05, 0.1, 0.2),
    ),
    "Nesterov, cosine": (_nesterov, (0.05, 0.1, 0.2, 0.5)),
    "Adam": (_adam(), (0.001, 0.002, 0.005, 0.01)),
    "Adam, clipped": (_adam(clipnorm=0.1), (0.0005, 0.001, 0.002, 0.005)),
    "Adam, averaged": (_adam(use_ema=True, ema_momentum=0.98), (0.001, 0.002, 0.005, 0.01)),
    "AdamW": (_constant(optimizers.AdamW, weight_decay=0.01), (0.0005, 0.001, 0.002, 0.005)),
    "Nadam": (_constant(optimizers.Nadam), (0.001, 0.002, 0.005, 0.01)),
    "Adamax": (_constant(optimizers.Adamax), (0.001, 0.002, 0.005, 0.01)),
    "RMSprop": (_constant(optimizers.RMSprop), (0.0005, 0.001, 0.002, 0.005)),
    "Adagrad": (_constant(optimizers.Adagrad), (0.01, 0.02, 0.05, 0.1)),
    "Lamb": (_constant(optimizers.Lamb), (0.005, 0.01, 0.02, 0.05)),
    "Lion": (_constant(optimizers.Lion), (0.0001, 0.0002, 0.0005, 0.001)),
    "Adafactor": (_constant(optimizers.Adafactor, relative_step=False), (0.005, 0.01, 0.02, 0.05)),
    "Muon": (_muon, (0.005, 0.01, 0.02, 0.05)),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A model, an optimizer and a number of replicas.

    Attributes:
      task: a key of `quality_tasks.TASKS`.
      optimizer: a key of `OPTIMIZERS`.
      replicas: how many share a batch.
      set_aside: whether nothing may be chosen by it.
      rate: the learning rate, if it is not the best one for uncompressed training.
    """

    task: str
    optimizer: str
    replicas: int = 4
    set_aside: bool = False
    rate: float | None = None

    @property
    def name(self) -> str:
        at = "" if self.rate is None else f" at {self.rate}"
        return f"{self.task}, {self.optimizer}{at}"


_set_aside = functools.partial(Cell, set_aside=True)

CELLS = (
    Cell("MLP", "momentum"),
    Cell("MLP", "Adagrad", replicas=8),
    _set_aside("MLP", "Lion"),
    Cell("CNN", "SGD"),
    Cell("CNN", "Adam, clipped"),
    _set_aside("CNN", "Adamax", replicas=16),
    Cell("CNN, normalized", "Nesterov, cosine"),
    Cell("CNN, normalized", "RMSprop", replicas=8),
    _set_aside("CNN, normalized", "AdamW"),
    Cell("autoencoder", "Muon"),
    Cell("autoencoder", "Adam, averaged"),
    _set_aside("autoencoder", "Lamb", replicas=8),
    Cell("mixer", "AdamW"),
    Cell("mixer", "momentum, decayed weights"),
    _set_aside("mixer", "Muon"),
    Cell("GRU", "Nadam"),
    Cell("GRU", "momentum, clipped"),
    _set_aside("GRU", "Adam"),
    Cell("LSTM", "Adam"),
    Cell("LSTM", "Adafactor", replicas=8),
    _set_aside("LSTM", "Nadam"),
    Cell("transformer", "AdamW"),
    Cell("transformer", "Lamb", replicas=8),
    _set_aside("transformer", "Adam, averaged"),
    Cell("embeddings", "Adagrad"),
    Cell("embeddings", "RMSprop"),
    _set_aside("embeddings", "Adafactor"),
)
# Added later, to find out when three bits are too few: dense gradients, orthogonal updates, and
# rates that are not the best ones.
LATER = (
    Cell("wide autoencoder", "Muon"),
    _set_aside("deep autoencoder", "Muon"),
    Cell("autoencoder", "Muon", rate=0.002),
    Cell("autoencoder", "Muon", rate=0.001),
    Cell("GRU", "Adafactor", rate=0.005),
    Cell("GRU", "Adafactor", rate=0.01),
    _set_aside("GRU", "Adafactor", rate=0.02),
    Cell("LSTM", "Adafactor", replicas=8, rate=0.05),
    _set_aside("LSTM", "Adafactor", replicas=8, rate=0.1),
    Cell("LSTM", "Adafactor", replicas=8, rate=0.4),
    _set_aside("transformer", "Muon"),
)
# Larger ones, on data that others made and that is downloaded. Nothing may be chosen by them.
DOWNLOADED = tuple(_set_aside(task, "Adam") for task in ("MNIST", "Fashion-MNIST", "Bible"))
# Whether a change is worth the whole.
QUICK = ("MLP, momentum", "autoencoder, Muon", "GRU, Nadam", "LSTM, Adam")
