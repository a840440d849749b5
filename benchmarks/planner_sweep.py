"""Draws the planner's sweep to 1,024 workers of 8 V100 GPUs. Measures nothing."""

import functools

import keras
import report
from matplotlib import pyplot as plt

import tf_gc
from tf_gc.planner.__main__ import parse, plan

resnet50 = functools.partial(keras.applications.ResNet50, weights=None)
vgg16 = functools.partial(keras.applications.VGG16, weights=None)
FLAGS = "--transport nccl --gpus-per-host 8 --host-rate 130gbyte --copy-rate 780gbyte --step-time "
WORKERS = [2**i for i in range(1, 11)]
LINES = {
    "stock": (tf_gc.NoCompression(), "k-"),
    "16 bits, hierarchical": (tf_gc.Cast(), "k--"),
    "3 bits, hierarchical": (tf_gc.Quantized(3), "C2-"),
    "3 bits, flat": (tf_gc.Quantized(3, plan="scatter_gather"), "C1-"),
}


def main() -> None:
    figure, every_axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for axes, model, ms in zip(every_axes, ("resnet50", "vgg16"), (174, 287), strict=True):
        predict = plan(parse(f"--model {__file__}:{model} {FLAGS}{ms}".split()))
        for label, (params, style) in LINES.items():
            seconds = [predict(params, workers, 25e9).seconds for workers in WORKERS]
            axes.semilogx(WORKERS, seconds, style, label=label)
        axes.set(title=f"{model}, links of 25 Gbit/s", xlabel="workers of 8 V100", ylim=0)
        axes.xaxis.set_major_formatter("{x:,g}")
    every_axes[0].set_ylabel("seconds of a step, on paper")
    every_axes[0].legend()
    figure.savefig(report.RESULTS / "planner_sweep.png", dpi=120)


if __name__ == "__main__":
    main()
