"""The program `python -m tf_gc.planner`: its flags, and its steps."""

import argparse
import functools
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path

from tf_gc.cluster.devices import check_devices
from tf_gc.params import CompressionParams
from tf_gc.planner import forecast, measure, plot
from tf_gc.planner.gpus import COPY_RATE, gpu_cost
from tf_gc.planner.prediction import Cost, Prediction, SimulatedNetwork, predict
from tf_gc.planner.time_model import TRANSPORTS, Compute, Link
from tf_gc.planner.workload import UsageError, load_function, make_workload

_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "mbyte": 8e6, "gbyte": 8e9}


def bits_per_second(text: str) -> float:
    """Reads "100mbit" as 1e8 bits a second."""
    match = re.fullmatch(rf"(\d+(?:\.\d+)?)({'|'.join(_UNITS)})", text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(
            f'a rate is like "100mbit" or "2.5gbit" ({", ".join(_UNITS)}), not {text!r}'
        )
    return float(match[1]) * _UNITS[match[2]]


def count(text: str) -> int:
    """Reads a number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, not {text!r}")
    return int(text)


def milliseconds(text: str) -> float:
    """Reads milliseconds; returns seconds."""
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise argparse.ArgumentTypeError(f"must be a number of milliseconds from 0, not {text!r}")
    return float(text) / 1e3


def transport(text: str) -> dict[str, float]:
    """Reads a name, or the rate that gRPC carries over an infinitely fast link, or "none"."""
    if text in TRANSPORTS:
        return TRANSPORTS[text]
    if text != "none" and not text[:1].isdecimal():
        raise argparse.ArgumentTypeError(f"is grpc, nccl, none or a rate, not {text!r}")
    return {**TRANSPORTS["grpc"], "byte": 0.0 if text == "none" else 8 / bits_per_second(text)}


def picture(text: str) -> Path:
    """Reads the name of a picture that can be written."""
    path = Path(text)
    if path.suffix != ".png" or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"is a FILE.png in a folder that exists, not {text!r}")
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("needs Matplotlib: pip install matplotlib")
    return path


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Returns the options; ends the program if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tf_gc.planner",
        description="Predicts the time of a model's step on a cluster, without compression and "
        "with a few bits an element: on machines like this one, on which it measures the model, "
        "or on GPUs, given the time of a step.",
    )
    add = parser.add_argument
    add("--model", required=True, metavar="FILE.py:FUNCTION", help="returns a Keras model")
    batch = "given a batch size, returns (x, y), for a model that is compiled with a loss (default:"
    batch += " random inputs, and the mean of the squared outputs as the loss)"
    add("--batch", metavar="FILE.py:FUNCTION", help=batch)
    add("--batch-size", type=count, default=32, help="of a worker (default: 32)")
    workers = "how many (default: 2 4 8)"
    add("--workers", type=count, nargs="+", metavar="N", default=[2, 4, 8], help=workers)
    rate = "of a worker's link, such as 100mbit or 25gbit (default: 100mbit 1gbit 10gbit)"
    add("--rate", type=bits_per_second, nargs="+", metavar="RATE", help=rate)
    over = "the rate is gRPC's over an infinitely fast link, or none for no limit"
    add("--transport", type=transport, default="grpc", metavar="{grpc,nccl,none,RATE}", help=over)
    add("--launch", type=milliseconds, metavar="MS", help="milliseconds to start a collective")
    add("--latency", type=milliseconds, metavar="MS", help="milliseconds of a round of messages")
    step = "milliseconds of a step on one GPU, or of its forward pass, backpropagation and update"
    add("--step-time", type=milliseconds, nargs="+", metavar="MS", help=step)
    copies = "at which it copies, bytes read and written (default: as an H200, "
    copies += f"{COPY_RATE / _UNITS['gbyte']:g}gbyte)"
    add("--copy-rate", type=bits_per_second, metavar="RATE", help=copies)
    add("--gpus-per-host", type=count, default=1, metavar="N", help="of a worker (default: 1)")
    add("--host-rate", type=bits_per_second, metavar="RATE", help="of a GPU to others of its host")
    add("--plot", type=picture, metavar="FILE.png", help="draws times of a step over the rate")
    options = parser.parse_args(arguments)
    times: list[float] = options.step_time or []
    gpus, alone = options.gpus_per_host, 1 in options.workers
    for wrong, problem in (
        (alone and gpus == 1, "--workers needs numbers from 2: 1 worker sends nothing"),
        (alone and options.workers != [1], "--workers 1 has another rate: ask for it alone"),
        (alone and options.rate, "--workers 1 sends over no link: give --host-rate, not --rate"),
        (alone and "level" not in options.transport, "--workers 1 needs --transport nccl"),
        (len(times) not in (0, 1, 3), f"--step-time takes 1 or 3 numbers, not {len(times)}"),
        (options.copy_rate and not times, "--copy-rate needs --step-time"),
        (gpus > 1 and not times, f"--gpus-per-host {gpus} needs --step-time"),
        (gpus > 1 and not options.host_rate, f"--gpus-per-host {gpus} needs --host-rate"),
        (gpus == 1 and options.host_rate, "--host-rate needs --gpus-per-host from 2"),
    ):
        if wrong:
            parser.error(problem)
    if len(times) == 1:  # backpropagation counts as two thirds
        options.step_time = [times[0] / 3, times[0] * 2 / 3, 0.0]
    options.rate = [options.host_rate] if alone else options.rate or [1e8, 1e9, 1e10]
    named = {"launch": options.launch, "latency": options.latency}
    options.link = options.transport | {k: v for k, v in named.items() if v is not None}
    options.link |= {"gpus": gpus, "host_byte": 8 / options.host_rate if gpus > 1 else 0.0}
    return options


def plan(options: argparse.Namespace) -> forecast.Predict:
    """Says what a step takes without other workers, and returns what predicts steps."""
    make_batch = load_function(options.batch, "--batch") if options.batch else None
    make_model = load_function(options.model, "--model")
    workload = make_workload(make_model, options.batch_size, make_batch)
    if options.step_time:
        compute, alone = Compute(*options.step_time), ", as given"
        _, gradients = measure.gradients_of(workload, run=False)
        cost_of: Callable[..., Cost] = functools.partial(gpu_cost, options.copy_rate or COPY_RATE)
    else:
        compute, alone = measure.measure_compute(workload), f" with batch size {options.batch_size}"
        values, gradients = measure.gradients_of(workload)
        two_workers = SimulatedNetwork(Link(2, 1e9), gradients.device)
        check_devices(forecast.CHOICES[forecast.DEFAULT], two_workers)
        cost_of = measure.Costs(workload, values)
    elements = sum(g.elements for g in gradients.known if g is not None and not g.sparse)
    sparse = f", {len(gradients.sparse_bytes)} sparse" if gradients.sparse_bytes else ""
    print(f"{options.model}: {elements:,} elements of dense gradients{sparse}")
    print(
        f"a step alone{alone}: {1e3 * compute.total:.1f} ms (forward {1e3 * compute.forward:.1f}, "
        f"backward {1e3 * compute.backward:.1f}, update {1e3 * compute.update:.1f})"
    )

    @functools.cache
    def predicted(params: CompressionParams, workers: int, rate: float) -> Prediction:
        return predict(params, gradients, compute, cost_of, Link(workers, rate, **options.link))

    return predicted


def main(arguments: list[str] | None = None) -> None:
    """Runs the program."""
    options = parse(arguments)
    try:
        predict = plan(options)
    except UsageError as error:
        sys.exit(f"error: {error}")
    table = forecast.table(predict, options.workers, options.rate)
    print(f"\n{table}\n\n{forecast.words(predict, options.workers)}")
    if options.plot:
        plot.draw(predict, options.workers, options.rate, options.plot)


if __name__ == "__main__":
    main()
