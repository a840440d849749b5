"""The program `python -m tf_gc.planner`: its flags, and its steps."""

import argparse
import functools
import re
import sys

from tf_gc.cluster.devices import check_devices
from tf_gc.params import CompressionParams
from tf_gc.planner import forecast, measure
from tf_gc.planner.prediction import Prediction, SimulatedNetwork, predict
from tf_gc.planner.time_model import BYTE, LATENCY, LAUNCH, Link
from tf_gc.planner.workload import UsageError, load_function, make_workload

_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def bits_per_second(text: str) -> float:
    """Reads "100mbit" as 1e8 bits a second."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(
            f'a rate is like "100mbit" or "2.5gbit" (kbit, mbit, gbit), not {text!r}'
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


def seconds_per_byte(text: str) -> float:
    """Reads a rate, or "none" for a transport that takes no time."""
    return 0.0 if text == "none" else 8 / bits_per_second(text)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Returns the options; ends the program if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tf_gc.planner",
        description="Measures a model on this machine, and predicts the time of a step on a "
        "cluster of such machines, without compression and with 1 to 4 and 8 bits. The defaults of "
        "the transport are TensorFlow's collectives over gRPC, measured on 2 cores.",
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
    rates = [1e8, 1e9, 1e10]
    add("--rate", type=bits_per_second, nargs="+", metavar="RATE", default=rates, help=rate)
    transport = "carried over an infinitely fast link, or none for no limit (default: "
    transport += f"{8e-9 / BYTE:.1f}gbit)"
    add("--transport", type=seconds_per_byte, default=BYTE, metavar="RATE", help=transport)
    launch = f"milliseconds to start a collective (default: {1e3 * LAUNCH:g})"
    add("--launch", type=milliseconds, default=LAUNCH, metavar="MS", help=launch)
    latency = f"milliseconds of a round of messages (default: {1e3 * LATENCY:g})"
    add("--latency", type=milliseconds, default=LATENCY, metavar="MS", help=latency)
    options = parser.parse_args(arguments)
    if min(options.workers) == 1:
        parser.error("--workers needs numbers from 2: 1 worker sends nothing")
    return options


def plan(options: argparse.Namespace) -> forecast.Predict:
    """Measures the model on this machine, says what that takes, and returns what predicts steps."""
    make_batch = load_function(options.batch, "--batch") if options.batch else None
    make_model = load_function(options.model, "--model")
    workload = make_workload(make_model, options.batch_size, make_batch)
    compute = measure.measure_compute(workload)
    values, gradients = measure.gradients_of(workload)
    two_workers = SimulatedNetwork(Link(2, 1e9), gradients.device)
    check_devices(forecast.CHOICES[forecast.DEFAULT], two_workers)
    elements = sum(g.elements for g in gradients.known if g is not None and not g.sparse)
    sparse = f", {len(gradients.sparse_bytes)} sparse" if gradients.sparse_bytes else ""
    print(f"{options.model}: {elements:,} elements of dense gradients{sparse}")
    print(
        f"a step alone with batch size {options.batch_size}: {1e3 * compute.total:.1f} ms (forward "
        f"{1e3 * compute.forward:.1f}, backward {1e3 * compute.backward:.1f}, update "
        f"{1e3 * compute.update:.1f})"
    )
    costs = measure.Costs(workload, values)

    @functools.cache
    def predicted(params: CompressionParams, workers: int, rate: float) -> Prediction:
        link = Link(workers, rate, options.launch, options.latency, options.transport)
        return predict(params, gradients, compute, costs, link)

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


if __name__ == "__main__":
    main()
