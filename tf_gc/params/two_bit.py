"""Two bits an element, with error feedback."""

import dataclasses
from typing import ClassVar

import numpy as np

from tf_gc.params.threshold_params import THRESHOLD_LIMIT, ThresholdParams

_SMALLEST_THRESHOLD = 2.0**-126  # the smallest normal float32


@dataclasses.dataclass(frozen=True)
class TwoBit(ThresholdParams):
    """Sends each gradient element as +s, -s or 0 and keeps the rest in a residual.

    Attributes:
      threshold: `"auto"` (the default): each block of 128 elements has its own s, found from
        the magnitudes in the block. Or a positive number: s is that number for all elements, and
        an element is sent when gradient plus residual reaches it; this is MXNet's 2-bit
        gradient compression. Keras averages the loss over the batch and MXNet adds it up, so
        a threshold that suits MXNet is too large here by about the batch size.
      bypass_size: tensors with fewer elements are reduced in full precision. `None` chooses
        2,048 with `"auto"`, and 0 for a number as threshold, since MXNet compresses every
        tensor.
      plan: who sends what to whom. "all_gather": every replica sends its message to all others.
        "scatter_gather": every replica adds up one shard, and sends the sum to all others; what
        a replica sends does not grow with the number of replicas. With automatic scales the sums
        are rounded again (`sum_bits`), and the residuals keep what that leaves; with a fixed
        threshold the result is that of "all_gather", bit for bit. "hierarchical": the replicas of
        a host are summed in full precision, and only what crosses hosts is compressed. "auto"
        (the default): the plan that sends least.
      sum_bits: how many bits, 2 or 3, an element of a sum takes in a "scatter_gather" with
        automatic scales. `None` means 3, with more levels, which trains as "all_gather" does; 2
        sends a fifth less. With a fixed threshold sums are sent without loss.
      warm_up: whether the first steps, a dozen to a few dozen, are in full precision, until the
        norm of the gradients has stopped growing (`tf_gc.steps.warm_up`). In these steps Adam
        learns how large gradients are. `None` means yes with `"auto"`; a fixed threshold has no
        warm-up, as in MXNet.
      wire: how codes travel, which changes no result: "packed", two bits for each; or "compact",
        fewer bits for frequent codes than for rare ones, in each column of a matrix by itself. That
        takes some time on the CPU, which packs for a GPU, too. `None` (the default) means "compact"
        between hosts whose CPUs reach each other at a low rate, measured when the strategy is made,
        and else "packed".
      exclude: variables whose gradients are reduced in full precision, by the stock ops: patterns,
        or one of them. A pattern is a regular expression, which is searched for anywhere in the
        variable's path (`variable.path` of a Keras variable, the name without ":0" of a
        `tf.Variable`): "embeddings" or r"/gamma$". Or it is a function that takes a
        `tf_gc.params.Gradient`, which has `path`, `shape` and `dtype`, and returns whether its
        variable is meant; it has to say the same on all workers.
      sparse: whether gradients that are `tf.IndexedSlices`, as those of embeddings, are compressed
        on CPUs: rows that occur several times are merged, and each has a scale of its own. `None`
        means those of tables from 262,144 elements on, with `"auto"`; a fixed threshold has no
        codes for them, as in MXNet.
      sparse_residual_bytes: a table whose residual would be larger than this, in bytes a replica,
        has none. Its rows are then sent in two messages, of which the second encodes what the first
        one leaves. The default is 64 MiB.

    Raises:
      ValueError: if an attribute has another value.
      TypeError: if `exclude` has something that is no pattern.
    """

    _bits: ClassVar[int] = 2

    @staticmethod
    def _takes(threshold: np.float32) -> bool:
        return bool(_SMALLEST_THRESHOLD <= threshold < THRESHOLD_LIMIT)

    @staticmethod
    def _range() -> str:
        return "a positive, finite number (from 2^-126 to below 2^120)"
