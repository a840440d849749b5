"""The planner's model comes to the conclusions of a paper, given its settings.

Agarwal et al., "On the Utility of Gradient Compression in Distributed Training Systems" (MLSys
2022, arXiv 2103.00543) measured PowerSGD, top-k and signSGD against all-reduce that overlaps with
backpropagation, on V100 GPUs and links of 10 Gbit/s. Sizes follow from the layers' shapes; PowerSGD
sends r (n + m) numbers of an n × m matrix. NVIDIA's DeepLearningExamples say how fast a V100
trains, and backpropagation counts as two thirds of a step. Buckets have 25 MB, as in PyTorch. Times
to encode and decode ResNet-50's gradients are from table 2, noted down without the paper at hand:
each conclusion is also asked with half of each, and, where that is not the easier case, with twice
as much. BERT gets ResNet-50's time for each element; latencies are 0 or 10 µs.

docs/planner.md has what the model predicts beside what others measured, and where that is from.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tf_gc.planner.time_model import SLOWDOWN, TRANSPORTS, Compute, Link, step_seconds

BUCKET = 25 << 20
GAMMAS = (1.04, 1.1)
LATENCIES = (0.0, 1e-5)
# Seconds to encode and decode all gradients of ResNet-50.
POWER_SGD = {4: 0.045, 8: 0.064, 16: 0.130}
SIGN_SGD = 0.01634
HALF_TO_TWICE = (0.5, 1.0, 2.0)


@dataclasses.dataclass(frozen=True)
class Model:
    """The elements of all matrices, and the sums of their rows and of their columns."""

    elements: int
    rows: int
    columns: int


# A convolution's matrix is [out, in · height · width].
RESNET_50 = Model(25_502_912, 27_560, 54_931)
BERT = Model(109_360_128, 87_100, 113_664)

IMAGES_A_SECOND = 367  # ResNet-50 in float32, 16 GB
# BERT-Large in float32, 10 sentences of 384 tokens, 32 GB. BERT-Base has 85 million parameters in
# its layers instead of 302 million.
SENTENCES_A_SECOND = 10.42 * 302 / 85


def compute(samples: int, samples_a_second: float) -> Compute:
    step = samples / samples_a_second
    return Compute(forward=step / 3, backward=step * 2 / 3, update=0)


def all_reduced(model: Model, computing: Compute, network: Link, gamma: float) -> float:
    return in_buckets(computing, 4 * model.elements, network.all_reduce, BUCKET, gamma)


def in_buckets(own: Compute, size: float, send: Any, by: int, gamma: float = SLOWDOWN) -> float:
    """A step whose gradients are sent in buckets while backpropagation goes on."""
    buckets = math.ceil(size / by)
    one = send(size / buckets)
    return step_seconds(own, (buckets - 1) * one, one, slowdown=gamma)


def settings(rate: float, workers: tuple[int, ...]) -> Iterator[tuple[Link, float]]:
    for number, latency, gamma in itertools.product(workers, LATENCIES, GAMMAS):
        yield Link(number, rate, 0, latency, 0), gamma


@pytest.mark.parametrize(
    ("model", "batches", "rates", "workers", "ranks", "factors", "least", "most"),
    [
        # A fifth at most, and that only if encoding took half of the time.
        (RESNET_50, (64, 128), (1e10,), (8, 16, 32, 64, 96), POWER_SGD, (0.5,), 0, 1.2),
        (RESNET_50, (64, 128), (1e10,), (8, 16, 32, 64, 96), POWER_SGD, (1.0, 2.0), 0, 1.1),
        (RESNET_50, (64, 128), (1e10,), (8, 16, 32, 64, 96), (16,), (1.0, 2.0), 0, 1),
        # On faster links nothing gains, on slow ones a low rank does.
        (RESNET_50, (64,), (2.5e10, 1e11), (8, 64), POWER_SGD, (0.5, 1.0), 0, 1.05),
        (RESNET_50, (64,), (1e9,), (8, 64), (4,), HALF_TO_TWICE, 3, math.inf),
        (BERT, (8, 12), (1e10,), (32, 64, 96), (4,), HALF_TO_TWICE, 1.1, 3),
    ],
)
def test_what_power_sgd_gains(
    model: Model,
    batches: Iterable[int],
    rates: Iterable[float],
    workers: tuple[int, ...],
    ranks: Iterable[int],
    factors: Iterable[float],
    least: float,
    most: float,
) -> None:
    speed = IMAGES_A_SECOND if model is RESNET_50 else SENTENCES_A_SECOND
    for batch, rate, rank, factor in itertools.product(batches, rates, ranks, factors):
        computing = compute(batch, speed)
        coding = factor * POWER_SGD[rank] * model.elements / RESNET_50.elements
        for network, gamma in settings(rate, workers):
            baseline = all_reduced(model, computing, network, gamma)
            sending = sum(network.all_reduce(4 * rank * n) for n in (model.rows, model.columns))
            # It compresses after backpropagation, as the paper's does.
            ours = step_seconds(computing, 0, sending, coding)
            assert least < baseline / ours < most, (batch, network, gamma, rank, factor)


@pytest.mark.parametrize("factor", [0.5, 1.0])
def test_sign_sgd_scales_badly(factor: float) -> None:
    computing, coding = compute(64, IMAGES_A_SECOND), factor * SIGN_SGD
    for few, gamma in settings(1e10, (8,)):
        many = Link(96, 1e10, 0, few.latency, 0)
        gathers = (each.all_gather(RESNET_50.elements / 8) for each in (few, many))
        at_few, at_many = (step_seconds(computing, 0, sending, coding) for sending in gathers)
        stock_few, stock = (all_reduced(RESNET_50, computing, each, gamma) for each in (few, many))
        assert at_many > 1.8 * at_few
        assert stock < 1.35 * stock_few
        assert at_many > stock


def byteps(own: Compute, size: float, link: Link, part: float = 1) -> float:
    """Hosts send part of their sums' bytes to servers, and get as many. That costs no work."""
    in_host = 2 * (link.gpus - 1) / link.gpus
    return in_buckets(own, size, lambda n: link.seconds(part * n, 2, 2, in_host * n), 4 << 20)


def test_the_page_has_what_the_model_predicts() -> None:
    rings = {**TRANSPORTS["nccl"], "level": math.inf}  # NCCL had no trees then
    pascal = Link(128, 25e9, **rings, gpus=4, host_byte=1 / 12e9)
    slow, v100s = Link(8, 10e9, **rings), {**rings, "gpus": 8, "host_byte": 1 / 130e9}
    said: dict[str, list[float]] = collections.defaultdict(list)
    runs = (("Inception V3", 95e6, 134.4), ("ResNet-101", 178e6, 119.4), ("VGG-16", 553e6, 130.9))
    for _, size, speed in runs:
        own = compute(64, speed)
        step = in_buckets(own, size, pascal.all_reduce, 64 << 20)
        said["efficiency"].append(own.total / step)
    for _, size, speed, hosts in (("ResNet-50", 102e6, 367, 8), ("VGG-16", 553e6, 223, 4)):
        own = compute(64, speed)
        fast, cloud = Link(hosts, 25e9, **v100s), Link(8, 20e9, **v100s)
        ours, full = (byteps(own, size, slow, part) - own.total for part in (1 / 32, 1))
        said["communication"].append(ours / full - 1)
        said["time"].append(byteps(own, size, fast, 1 / 32) / byteps(own, size, fast) - 1)
        horovod = in_buckets(own, size, cloud.all_reduce, 64 << 20)
        said["speed"].append(horovod / byteps(own, size, cloud) - 1)
    for alone, measured, bits in ((1, 1 / 0.45, 4.125), (1.4, 6.4, 16)):
        sent = (measured - alone / 3) * bits / 32  # as 32 bits took what there was to wait for
        said["time in a host"].append(step_seconds(compute(1, 1 / alone), sent, 0) / measured - 1)
    page = (Path(__file__).parents[2] / "docs" / "planner.md").read_text()
    for what, figures in said.items():
        assert f"| {what} | {', '.join(f'{figure:.0%}' for figure in figures)} |" in page
