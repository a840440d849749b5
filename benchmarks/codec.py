"""Measures the codecs on one core, as ratios to memcpy in the same run.

`reencode`, `count` and `decode counts` are the second stage of the scatter-gather plan. `pack` and
`unpack` are the compact wire's, with codes as training makes them: of gradients with heavy tails,
whose mean is not zero, after some steps with error feedback.

A rate is bytes read plus bytes written per second. Encoding a float32 gradient reads it, reads and
writes the residual and writes the codes: 12.25 bytes an element; eight bits have no residual. The
results also have the time for a block, by which the cases can be added up: of one message, but
`decode N` reads N messages.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import report
from matplotlib import pyplot as plt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.custom_ops import native
from tests.custom_ops.cases import CODECS, SUMS
from tests.custom_ops.native import CODE_BITS, COMPACTIBLE, AnyCodec, EightBit, Levels, Target
from tests.oracles import compact as oracle_compact
from tf_gc.ops import _loader

Array = native.Array

SECONDS_A_SAMPLE = 0.01
THRESHOLD = 1.5
STEPS = 20  # of training, before a message to be packed is taken
LAPLACE_THRESHOLD = 3.0  # of the fixed codec; about one code in ten is not zero then
MEMCPY = "memcpy"


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    target: Target | None  # None for memcpy
    bytes_moved: int
    run: Callable[[int], float]  # repetitions to seconds


def name_of(codec: AnyCodec) -> str:
    variant = "" if isinstance(codec, Levels | EightBit) else f" {codec.name.lower()}"
    return f"{CODE_BITS[codec]}-bit{variant}"


def timed(call: Callable[[], object]) -> Callable[[int], float]:
    """Returns a function that takes the time of a number of calls."""

    def run(repetitions: int) -> float:
        start = time.perf_counter()
        for _ in range(repetitions):
            call()
        return time.perf_counter() - start

    return run


class Library(native.Library):
    """The codec library; a call that is timed converts no arguments."""

    def timed(self, name: str, *arguments: Any) -> Callable[[int], float]:
        function = getattr(self._c, f"tf_gc_{name}")
        converted = [native._value(argument) for argument in arguments]
        # It keeps the arrays, to which the converted arguments point.
        return timed(lambda arrays=arguments: function(*converted))


def aligned(size: int, dtype: npt.DTypeLike) -> Array:
    """Zeros that start at a cache line and are in memory already."""
    itemsize = np.dtype(dtype).itemsize
    raw = np.zeros(size * itemsize + 64, np.uint8)
    raw[:] = 1
    start = -raw.ctypes.data % 64
    array: Array = raw[start : start + size * itemsize].view(dtype)
    array[:] = 0
    return array


class Messages:
    """Memory for messages of a codec."""

    def __init__(self, codec: AnyCodec, blocks: int, count: int) -> None:
        self.codes = [aligned(blocks * native.code_bytes(codec), np.uint8) for _ in range(count)]
        self.scales = [aligned(blocks, np.uint16) for _ in range(count)]
        scale_bytes = self.scales[0].nbytes if native.has_scales(codec) else 0
        self.size = self.codes[0].nbytes + scale_bytes  # of one


def message_of_laplace(library: Library, codec: AnyCodec, size: int) -> Array:
    """Returns a message of gradients with heavy tails, whose mean is not zero.

    Args:
      library: encodes them.
      codec: the message's codec.
      size: the number of elements.

    Returns:
      The message with its header, uint8, one-dimensional.
    """
    blocks = native.num_blocks(size)
    rng = np.random.default_rng(1)
    # Each step has the same mean, and noise from another place of one array.
    mean = 0.3 * rng.laplace(size=1 << 20).astype(np.float32)
    noise = rng.laplace(size=1 << 21).astype(np.float32)
    gradient, residual = np.zeros((2, size), np.float32)
    own = Messages(codec, blocks, 1)
    for _ in range(STEPS):
        for start in range(0, size, mean.size):
            part = gradient[start : start + mean.size]
            offset = int(rng.integers(mean.size))
            np.add(mean[: part.size], noise[offset : offset + part.size], out=part)
        arguments = (gradient, residual, residual, own.codes[0], own.scales[0], LAPLACE_THRESHOLD)
        library.encode(codec, *arguments)
    scales = own.scales[0] if native.has_scales(codec) else own.scales[0][:0]
    return oracle_compact.make_message(int(codec), own.codes[0], scales, blocks)


class Packing:
    """A message whose codes are as training makes them, and its packed form."""

    def __init__(self, library: Library, codec: AnyCodec, size: int) -> None:
        self.library, self.codec = library, codec
        self.blocks = native.num_blocks(size)
        message = message_of_laplace(library, codec, size)
        self.message, self.unpacked = aligned(message.size, np.uint8), message.copy()
        self.message[:] = message
        self.packed = aligned(library.pack_capacity(codec, self.blocks), np.uint8)
        self.size = self.pack()

    def pack(self) -> int:
        return self.library.pack(self.codec, self.blocks, self.message, self.packed)

    def unpack(self) -> bool:
        packed = self.packed[: self.size]
        return self.library.unpack(self.codec, self.blocks, packed, self.unpacked)

    def of(self, target: Target) -> list[Case]:
        name, moved = name_of(self.codec), self.message.size + self.size
        return [
            Case(f"pack {name}", target, moved, timed(self.pack)),
            Case(f"unpack {name}", target, moved, timed(self.unpack)),
        ]


class Cases:
    """The cases for arrays of one size. They share a residual and a result."""

    def __init__(self, library: Library, size: int, replicas: int) -> None:
        self.library, self.size, self.replicas = library, size, replicas
        rng = np.random.default_rng(0)
        self.gradients: list[Array] = []
        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
            gradient = aligned(size, dtype)
            for start in range(0, size, 1 << 20):  # in parts, for the memory of the doubles
                part = gradient[start : start + (1 << 20)]
                part[:] = rng.standard_normal(part.size).astype(dtype)
            self.gradients.append(gradient)
        self.residual, self.result = aligned(size, np.float32), aligned(size, np.float32)

    def all(self) -> list[Case]:
        library, residual, result = self.library, self.residual, self.result
        packings = [Packing(library, codec, self.size) for codec in COMPACTIBLE]
        addresses = (result.ctypes.data, residual.ctypes.data, residual.nbytes)
        copy = timed(lambda: ctypes.memmove(*addresses))
        cases = [Case(MEMCPY, None, 2 * residual.nbytes, copy)]
        for target in library.supported_targets():
            for codec in CODECS:
                cases += self.of(codec, target)
        for target in library.supported_targets():
            for packing in packings:
                cases += packing.of(target)
        return cases

    def of(self, codec: AnyCodec, target: Target) -> list[Case]:
        library, residual, result = self.library, self.residual, self.result
        blocks, name = native.num_blocks(self.size), name_of(codec)
        kept = None if codec == EightBit.AUTO else residual
        received = Messages(codec, blocks, self.replicas)
        own = Messages(codec, blocks, 1)  # the decoders' messages stay as they are
        codes, scales = received.codes, received.scales
        for row in range(self.replicas):
            library.encode(codec, self.gradients[0], kept, kept, codes[row], scales[row], THRESHOLD)

        def encode(gradient: Array) -> Callable[[int], float]:
            arguments = (codec, gradient, kept, kept, own.codes[0], own.scales[0])
            return library.timed("encode", *library.encode_arguments(*arguments, THRESHOLD))

        decode_arguments = library.decode_arguments(codec, codes, scales, result, THRESHOLD)
        cases = [
            Case(
                f"encode {name} {gradient.dtype}",
                target,
                gradient.nbytes + (0 if kept is None else 2 * kept.nbytes) + own.size,
                encode(gradient),
            )
            for gradient in self.gradients
        ]
        moved = self.replicas * received.size + result.nbytes
        decode = library.timed("decode_sum", *decode_arguments)
        cases.append(Case(f"decode {self.replicas} {name}", target, moved, decode))
        return cases + self.second_stage(codec, target, received)

    def second_stage(self, codec: AnyCodec, target: Target, received: Messages) -> list[Case]:
        library, residual, result = self.library, self.residual, self.result
        codes, scales, name = received.codes, received.scales, name_of(codec)
        if codec.name != "FIXED":
            others = self.replicas - 1  # the own part is added in full precision
            sum_codec = [of_sum for of_codec, of_sum in SUMS if of_codec == codec][-1]  # the finer
            total = Messages(sum_codec, native.num_blocks(self.size), 1)
            kept = None if codec == EightBit.AUTO else residual

            def reencode() -> None:
                assert library.reencode(
                    *(codec, sum_codec, codes[:others], scales[:others]),
                    *(self.gradients[0], kept, kept, total.codes[0], total.scales[0]),
                )

            arrays = 1 if kept is None else 3
            moved = arrays * residual.nbytes + others * received.size + total.size
            return [Case(f"reencode {others} {name}", target, moved, timed(reencode))]
        bits = 4
        counts = aligned(native.num_blocks(self.size) * native.BLOCK_SIZE * bits // 8, np.uint8)
        library.count(codec, codes, scales, bits, counts)
        return [
            Case(
                f"count {self.replicas} {name}",
                target,
                self.replicas * received.size + counts.nbytes,
                timed(lambda: library.count(codec, codes, scales, bits, counts)),
            ),
            Case(
                f"decode counts of {name}",
                target,
                counts.nbytes + result.nbytes,
                timed(lambda: library.decode_counts(counts, bits, result, 1.0)),
            ),
        ]


def measure(
    library: Library, cases: list[Case], size: int, repetitions: int
) -> list[dict[str, Any]]:
    """Interleaves the cases, so that a slow moment of the machine meets all of them.

    A ratio is the median over the rounds of the ratio to the memcpy of the same round.
    """
    calls: list[int] = []
    for case in cases:
        if case.target is not None:
            library.force_target(case.target)
        case.run(1)
        calls.append(max(1, round(SECONDS_A_SAMPLE / case.run(1))))
    rates: list[list[float]] = [[] for _ in cases]
    for _ in range(repetitions):
        for case, count, samples in zip(cases, calls, rates, strict=True):
            if case.target is not None:
                library.force_target(case.target)
            samples.append(case.bytes_moved * count / case.run(count))
    copies = rates[0]
    calls_a_second = [
        statistics.median(samples) / case.bytes_moved
        for case, samples in zip(cases, rates, strict=True)
    ]
    return [
        {
            "case": case.name,
            "target": "libc" if case.target is None else case.target.name.lower(),
            "gigabytes_per_second": statistics.median(samples) / 1e9,
            "ratio_to_memcpy": statistics.median(
                rate / copy for rate, copy in zip(samples, copies, strict=True)
            ),
            "gradient_gigabytes_per_second": 4 * size * a_second / 1e9,
            "nanoseconds_per_block": 1e9 / a_second / native.num_blocks(size),
        }
        for case, samples, a_second in zip(cases, rates, calls_a_second, strict=True)
    ]


def print_table(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}\n{'case':28} {'target':8} {'GB/s':>8} {'x memcpy':>9} {'ns/block':>9}")
    for row in rows:
        print(
            f"{row['case']:28} {row['target']:8} {row['gigabytes_per_second']:8.1f}"
            f" {row['ratio_to_memcpy']:9.2f} {row['nanoseconds_per_block']:9.2f}"
        )


def plot(results: dict[str, Any], path: Path) -> None:
    runs = results["runs"]
    figure = plt.figure(figsize=(2 + 5 * len(runs), 14), layout="constrained")
    axes = figure.subplots(1, len(runs), sharey=True, squeeze=False)
    for axis, run in zip(axes[0], runs, strict=True):
        rows = [row for row in run["rows"] if row["case"] != MEMCPY]
        names = list(dict.fromkeys(row["case"] for row in rows))
        targets = list(dict.fromkeys(row["target"] for row in rows))
        height = 0.8 / len(targets)
        for i, target in enumerate(targets):
            ratios = {r["case"]: r["ratio_to_memcpy"] for r in rows if r["target"] == target}
            at = np.arange(len(names)) + (i - (len(targets) - 1) / 2) * height
            bars = axis.barh(at, [ratios[name] for name in names], height, label=target)
            axis.bar_label(bars, fmt="%.2f", padding=2, fontsize=7)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_yticks(range(len(names)), names)
        axis.set_title(run["title"])
        axis.set_xlabel("bytes moved a second, as a multiple of memcpy")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].invert_yaxis()
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.suptitle(f"codecs on one core: {results['cpu']}")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the codecs on one core.")
    parser.add_argument(
        "--elements",
        type=int,
        nargs="+",
        default=[1 << 16, 1 << 22, 1 << 24],
        help="sizes of the arrays; a result of 48 MiB or more is stored past the caches",
    )
    parser.add_argument("--replicas", type=int, default=2, help="messages decoded and added")
    parser.add_argument("--repetitions", type=int, default=15, help="samples of each case")
    parser.add_argument("--output", type=Path, default=report.RESULTS)
    options = parser.parse_args()

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core
    cpu = report.machine()["cpu"]
    results: dict[str, Any] = {"cpu": cpu, "replicas": options.replicas, "runs": []}
    print(f"CPU: {results['cpu']}")
    _loader.load()
    library = Library(_loader.library_path())
    for size in options.elements:
        cases = Cases(library, size, options.replicas).all()
        rows = measure(library, cases, size, options.repetitions)
        title = f"{size * 4 / 1e6:.3g} MB in float32"
        print_table(title, rows)
        results["runs"].append({"title": title, "elements": size, "rows": rows})

    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "codec.json").write_text(json.dumps(results, indent=2) + "\n")
    plot(results, options.output / "codec.png")


if __name__ == "__main__":
    main()
