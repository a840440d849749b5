"""Half a bit an element: how well training ends if only a few elements of a block are sent.

A simulated codec under the real strategies, with their residuals and warm-up, on the cells of
quality.py: the largest elements of each block as plus or minus a scale, with one or two magnitudes;
with momentum before error feedback (Deep Gradient Compression, Lin et al. 2018); and two bits of
rotated blocks (SDP4Bit, Jia et al. 2024). Its messages are the numbers that codes would stand for.
How many bits the codes would take is measured with the compact wire's packer: a variant's
"entropy" in the records, with the fields that each message has once.

    python benchmarks/simulated_topk.py --cells "MLP, momentum" --params '{"top": 8}' --seeds 1
"""

import argparse
import dataclasses
import functools
import json
import math
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import quality
import quality_report
import report
import tensorflow as tf
from quality_cells import CELLS, OPTIMIZERS

import tf_gc
from tf_gc import ops
from tf_gc.codecs import Codec
from tf_gc.gradients import Gradient, Uncompressed
from tf_gc.params import CompressionParams
from tf_gc.reducers.codes import Codes
from tf_gc.reducers.reducer import Spec

Tensors = Sequence[tf.Tensor]
Variables = Sequence[tf.Variable]

WIRE_BLOCK = 128
# The codecs whose messages are packed to count bits: number in messages, name, threshold, planes.
TWO_BIT_FIXED, TWO_BIT, THREE_BIT = (
    (1, "two_bit", 1.0),
    (2, "two_bit", "auto"),
    (8, "three_bit", "auto"),
)
EVERY = 8  # steps, of which one is counted
# Of momentum before error feedback, whose steps in full precision this file has to make itself: as
# many as the default makes with the MLP, on average of three seeds.
OWN_WARM_UP = 30
SMALL = 2048  # elements: fewer are sent as they are


@dataclasses.dataclass(frozen=True)
class SimulatedTopK(CompressionParams):
    """Arguments of the simulated codec.

    Attributes:
      top: how many elements of a block are sent; 0 for two bits of a rotated block.
      block: elements of a block.
      magnitudes: 1, the mean of those that are sent, or 2, the means of those above it and below.
      momentum: by which each replica adds up its gradients; the optimizer has none then.
    """

    top: int
    block: int = WIRE_BLOCK
    magnitudes: int = 1
    momentum: float = 0.0

    def specs(self) -> tuple[Spec, ...]:
        return (Codes(_TopKCodec(self), "all_gather", warm_up=not self.momentum),)

    def spec_of(self, gradient: Gradient) -> Spec | Uncompressed:
        bypass_size = 0 if self.momentum else SMALL
        spec = tf_gc.Quantized(bypass_size=bypass_size).spec_of(gradient)
        return spec if isinstance(spec, Uncompressed) else self.specs()[0]

    def arithmetic_bits(self) -> float:
        """Returns bits of an element if all choices were equally likely, scales of 16 bits."""
        if not self.top:
            return 2 + 16 / self.block
        places = math.log2(math.comb(self.block, self.top))
        second = 4 if self.magnitudes == 2 else 0
        return (places + self.top * self.magnitudes + 16 + second) / self.block


class Kept:
    """Variables of this process's codecs: how many bits were counted, and momenta."""

    def __init__(self) -> None:
        self.bits = tf.Variable(0.0, trainable=False, dtype=tf.float64)
        self.elements = tf.Variable(0.0, trainable=False, dtype=tf.float64)
        self.calls = tf.Variable(0, trainable=False, dtype=tf.int64)
        self.momenta: dict[Any, tuple[list[tf.Variable], tf.Variable]] = {}

    def mean(self) -> float:
        """Returns bits of an element."""
        return float(self.bits.numpy() / max(self.elements.numpy(), 1))

    def momenta_for(self, residuals: Variables) -> tuple[list[tf.Variable], tf.Variable]:
        """Returns momenta of the residuals' shapes, and how many steps were made with them."""
        key = residuals[0].ref()
        if key not in self.momenta:
            with tf.init_scope():
                momenta = [tf.Variable(tf.zeros(each.shape)) for each in residuals]
                self.momenta[key] = momenta, tf.Variable(0, dtype=tf.int64)
        return self.momenta[key]

    def reset(self) -> None:
        others = [each for momenta, steps in self.momenta.values() for each in (*momenta, steps)]
        for variable in (self.bits, self.elements, self.calls, *others):
            variable.assign(tf.zeros_like(variable))


@functools.cache
def kept() -> Kept:
    with tf.init_scope(), tf.device("CPU:0"):
        return Kept()


@dataclasses.dataclass(frozen=True)
class _TopKCodec(Codec):
    params: SimulatedTopK

    def bits(self, replicas: int) -> float:
        return 32.0

    def encode(self, gradients: Tensors, residuals: Variables) -> tf.Tensor:
        if self.params.momentum:
            return self._encode_momenta(gradients, residuals)
        values = self._blocks(gradients) + self._blocks(residuals)
        sent, codes, scales = self._rounded(values)
        if residuals[0].device.endswith("CPU:0"):
            self._count(codes, scales, gradients)
        self._keep(values - sent, residuals)
        return tf.bitcast(tf.reshape(sent, [1, -1, 2]), tf.int64)

    def _encode_momenta(self, gradients: Tensors, residuals: Variables) -> tf.Tensor:
        momenta, steps = kept().momenta_for(residuals)
        momentum = self.params.momentum * self._blocks(momenta) + self._blocks(gradients)
        values = momentum + self._blocks(residuals)
        rounded, codes, _ = self._rounded(values)
        small = [
            tf.fill(
                [-(-each.shape.num_elements() // self.params.block), 1],
                each.shape.num_elements() < SMALL,
            )
            for each in gradients
        ]
        whole = tf.logical_or(tf.concat(small, axis=0), steps < OWN_WARM_UP)
        sent = tf.where(whole, values, rounded)
        # Of what is sent no momentum is left, once not all of it is.
        stays = tf.logical_or(whole, tf.equal(codes, 0))
        self._keep(tf.where(stays, momentum, 0.0), momenta)
        self._keep(values - sent, residuals)
        steps.assign_add(1)
        return tf.bitcast(tf.reshape(sent, [1, -1, 2]), tf.int64)

    def decode(self, messages: Tensors, like: Tensors) -> list[tf.Tensor]:
        rows = [tf.bitcast(message, tf.float32) for message in messages]
        rows = [tf.reshape(row, [tf.shape(row)[0], -1]) for row in rows]
        return self._tensors(tf.reduce_sum(tf.concat(rows, axis=0), axis=0), like)

    def encode_shards(
        self, gradients: Tensors, residuals: Variables, shards: int, own: int
    ) -> tf.Tensor:
        raise NotImplementedError

    def sum_shard(
        self, messages: Tensors, gradients: Tensors, residuals: Variables, shards: int, own: int
    ) -> tf.Tensor:
        raise NotImplementedError

    def decode_shards(self, messages: Tensors, like: Tensors, replicas: int) -> list[tf.Tensor]:
        raise NotImplementedError

    def count_sent(
        self, messages: tf.Tensor, own: int | None = None, own_sum: tf.Tensor | None = None
    ) -> tf.Tensor:
        return tf.math.count_nonzero(tf.bitcast(messages, tf.float32))

    def _rounded(self, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns what is sent of `values`, [blocks, block]; codes from -3 to 3; scales."""
        if not self.params.top:
            return _two_bits_rotated(values)
        magnitudes = tf.abs(values)
        found, places = tf.math.top_k(magnitudes, self.params.top)
        blocks = tf.range(tf.shape(values)[0])[:, None] + tf.zeros_like(places)
        chosen = tf.scatter_nd(
            tf.stack([blocks, places], axis=-1), tf.ones_like(found), tf.shape(values)
        )
        chosen *= tf.cast(magnitudes > 0, tf.float32)
        scales = _rounded_to(tf.bfloat16, _mean(magnitudes, chosen))
        signs = tf.sign(values) * chosen
        if self.params.magnitudes == 1:
            return signs * scales, tf.cast(signs, tf.int32), scales
        high = chosen * tf.cast(magnitudes >= scales, tf.float32)
        scales = _rounded_to(tf.bfloat16, _mean(magnitudes, high))
        # The lower magnitude is a multiple of a sixteenth of the higher one.
        share = tf.math.divide_no_nan(_mean(magnitudes, chosen - high), scales)
        low = scales * tf.clip_by_value(tf.round(16 * share), 1, 16) / 16
        codes = tf.cast(signs, tf.int32) * (2 + tf.cast(high, tf.int32))
        return signs * tf.where(high > 0, scales, low), codes, scales

    def _count(self, codes: tf.Tensor, scales: tf.Tensor, gradients: Tensors) -> None:
        """Adds, in some steps, the bits that the compact wire takes for the codes."""
        one = self.params.magnitudes == 1
        if self.params.block == WIRE_BLOCK:
            kind = TWO_BIT if one else THREE_BIT
            own = 0.0
        else:
            # Blocks of another size have their scales by themselves.
            kind = TWO_BIT_FIXED if one else THREE_BIT
            own = 16.0 - (0 if one else 8 * self.params.block / WIRE_BLOCK)
            scales = tf.ones([codes.shape.num_elements() // WIRE_BLOCK, 1])
        own += 0.0 if one else 4.0
        number, name, threshold = kind
        periods = ops.periods(gradient.shape for gradient in gradients) or (1,)
        blocks = codes.shape[0]
        message = _message(tf.reshape(codes, [-1, WIRE_BLOCK]), scales, number)

        def bits() -> tf.Tensor:
            with tf.device("CPU:0"):
                _, words = ops.pack(message, name, threshold, periods)
                return 64.0 * tf.cast(words[0], tf.float64) + own * blocks

        elements = sum(gradient.shape.num_elements() for gradient in gradients)
        now = tf.equal(kept().calls.read_value() % EVERY, 0)
        kept().bits.assign_add(tf.cond(now, bits, lambda: tf.constant(0.0, tf.float64)))
        kept().elements.assign_add(tf.where(now, tf.constant(elements, tf.float64), 0.0))
        kept().calls.assign_add(1)

    def _blocks(self, tensors: Sequence[tf.Tensor | tf.Variable]) -> tf.Tensor:
        """Returns all elements, float32 [blocks, block]; each tensor begins with a block."""
        block, parts = self.params.block, []
        for tensor in tensors:
            flat = tf.reshape(tf.cast(tensor, tf.float32), [-1])
            parts.append(tf.pad(flat, [[0, -tensor.shape.num_elements() % block]]))
        return tf.reshape(tf.concat(parts, axis=0), [-1, block])

    def _tensors(
        self, values: tf.Tensor, like: Sequence[tf.Tensor | tf.Variable]
    ) -> list[tf.Tensor]:
        """Returns what `_blocks` put together."""
        values, results, begin = tf.reshape(values, [-1]), [], 0
        for tensor in like:
            size = tensor.shape.num_elements()
            part = tf.reshape(values[begin : begin + size], tensor.shape)
            results.append(tf.cast(part, tensor.dtype))
            begin += -(-size // self.params.block) * self.params.block
        return results

    def _keep(self, left: tf.Tensor, variables: Variables) -> None:
        for variable, value in zip(variables, self._tensors(left, variables), strict=True):
            variable.assign(value)


def _mean(magnitudes: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    total = tf.reduce_sum(magnitudes * chosen, axis=-1, keepdims=True)
    return tf.math.divide_no_nan(total, tf.reduce_sum(chosen, axis=-1, keepdims=True))


def _rounded_to(dtype: tf.DType, values: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.cast(values, dtype), tf.float32)


def _hadamard(size: int) -> npt.NDArray[np.float32]:
    matrix = np.ones([1, 1], np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.float32(size**0.5)


def _two_bits_rotated(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """As `_rounded`: rotates blocks and rounds as `Quantized(2)` does."""
    rotation = tf.constant(_hadamard(values.shape[-1]))
    rotated = tf.matmul(values, rotation)
    magnitudes = tf.abs(rotated)
    scales = _rounded_to(tf.bfloat16, tf.reduce_max(magnitudes, axis=-1, keepdims=True) * 2 / 3)
    sent = tf.logical_and(magnitudes >= scales / 2, scales > 0)
    signs = tf.where(sent, tf.sign(rotated), 0.0)
    return tf.matmul(signs * scales, rotation), tf.cast(signs, tf.int32), scales


def _message(codes: tf.Tensor, scales: tf.Tensor, number: int) -> tf.Tensor:
    """Returns a message of codes from -3 to 3, int32 [blocks, 128], of a native codec.

    A codec's number says which, as in custom_ops/lib/wire/wire.h; `scales` are [blocks, 1].
    """
    threshold = 1.0 if number == TWO_BIT_FIXED[0] else 0.0
    header = struct.pack("<HBBfq", 0x4347, 1, number, threshold, codes.shape[0])
    if number == THREE_BIT[0]:
        symbols = tf.abs(codes) + 4 * tf.cast(codes < 0, tf.int32)
        bits = tf.stack([tf.bitwise.right_shift(symbols, i) % 2 for i in range(3)], axis=1)
        bits = tf.reshape(bits, [-1, 8])
        weights = [1 << i for i in range(8)]
    else:
        bits = tf.reshape(tf.where(codes > 0, 3, tf.where(codes < 0, 2, 0)), [-1, 4])
        weights = [64, 16, 4, 1]
    parts = [tf.constant(np.frombuffer(header, np.uint8))]
    parts.append(tf.cast(tf.reduce_sum(bits * weights, axis=-1), tf.uint8))
    if number != TWO_BIT_FIXED[0]:
        parts.append(tf.reshape(tf.bitcast(tf.cast(scales, tf.bfloat16), tf.uint8), [-1]))
    packed = tf.concat(parts, axis=0)
    packed = tf.pad(packed, [[0, -packed.shape[0] % 16]])
    return tf.bitcast(tf.reshape(packed, [1, -1, 8]), tf.int64)


def without_momentum(rate: float, steps: int) -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cells", nargs="+", default=[], help="names; all of them")
    parser.add_argument("--params", nargs="+", required=True, metavar="JSON")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--directory", type=Path, default=report.RESULTS, help="of the results")
    options = parser.parse_args()
    quality.set_devices()
    rates = quality.best_rates(options.directory / "quality_rates.jsonl")
    path = options.directory / "quality_runs.jsonl"
    for text in options.params:
        params = SimulatedTopK(**json.loads(text))
        for cell in CELLS:
            if options.cells and cell.name not in options.cells:
                continue
            task, rate = quality.TASKS[cell.task], rates[cell.name]
            settings = {"epochs": task.epochs, "rate": rate, "replicas": cell.replicas}
            trainer = None
            for seed in range(1, options.seeds + 1):
                key = {"cell": cell.name, "variant": text, "seed": seed, **settings}
                if quality_report.find(path, key):
                    continue
                start = time.perf_counter()
                if trainer is None:
                    make = OPTIMIZERS[cell.optimizer]
                    if params.momentum:
                        OPTIMIZERS[cell.optimizer] = (without_momentum, make[1])
                    trainer = quality.Trainer(cell, params, rate)
                    OPTIMIZERS[cell.optimizer] = make
                kept().reset()
                run = {**key, **trainer.run(seed), "every": task.evaluate_every}
                run["warm_up_steps"] = trainer.strategy.compression_state.warm_up_steps
                if not params.momentum:
                    run["entropy"] = round(kept().mean(), 4)
                run["arithmetic_bits"] = round(params.arithmetic_bits(), 4)
                quality_report.append(path, run)
                seconds = time.perf_counter() - start
                print(
                    cell.name,
                    text,
                    seed,
                    run["curve"][-1],
                    run.get("entropy"),
                    f"({seconds:.1f} s)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
