"""The program `python -m tf_gc.planner`: its flags, and what it does one after the other."""

import argparse
import functools
import re
import sys
import traceback
from pathlib import Path

from tf_gc.planner import forecast, measure
from tf_gc.planner.prediction import CHOICES, Choice, CodecCost, Prediction, predict
from tf_gc.planner.subject import UsageError, load_function, make_subject
from tf_gc.planner.time_model import BYTE, LATENCY, LAUNCH, SLOWDOWN, Link
from tf_gc.reducers.rows import ROWS

_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def bits_per_second(text: str) -> float:
    """The type of `--rate`: "100mbit" is 1e8 bits a second."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(
            f'a rate is like "100mbit" or "2.5gbit" (kbit, mbit, gbit), not {text!r}'
        )
    return float(match[1]) * _UNITS[match[2]]


def count(text: str) -> int:
    """The type of flags that count."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, not {text!r}")
    return int(text)


def milliseconds(text: str) -> float:
    """The type of flags that give times: seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of milliseconds from 0, not {text!r}")
    return value / 1e3


def seconds_per_byte(text: str) -> float:
    """The type of `--transport`: a rate, or "none" for a transport that takes no time."""
    return 0.0 if text == "none" else 8 / bits_per_second(text)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Returns the options; ends the program if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tf_gc.planner",
        description="Measures a model on this machine, and predicts the time of a step on a "
        "cluster of such machines, without compression and with 1 to 4 bits.",
    )
    parser.add_argument(
        "--model", required=True, metavar="FILE.py:FUNCTION", help="returns a Keras model"
    )
    parser.add_argument(
        "--batch",
        metavar="FILE.py:FUNCTION",
        help="given a batch size, returns (x, y), for a model that is compiled with a loss "
        "(default: random inputs, and the mean of the squared outputs as the loss)",
    )
    parser.add_argument("--batch-size", type=count, default=32, help="of a worker (default: 32)")
    parser.add_argument(
        "--workers",
        type=count,
        nargs="+",
        default=[2, 4, 8],
        metavar="N",
        help="how many (default: 2 4 8)",
    )
    parser.add_argument(
        *("--rate",),
        type=bits_per_second,
        nargs="+",
        default=[1e8, 1e9, 1e10],
        help="of a worker's link, such as 100mbit or 25gbit (default: 100mbit 1gbit 10gbit)",
    )
    parser.add_argument("--plot", metavar="FILE", help="write a picture; needs matplotlib")
    parser.add_argument(
        "--repeats", type=count, default=10, help="how often to measure each time (default: 10)"
    )
    network = parser.add_argument_group(
        "network", "the defaults are TensorFlow's collectives over gRPC, measured on 2 cores"
    )
    network.add_argument(
        *("--transport",),
        type=seconds_per_byte,
        default=BYTE,
        metavar="RATE",
        help="what the transport would carry over an infinitely fast link, or none for no limit "
        f"(default: {8e-9 / BYTE:.1f}gbit)",
    )
    network.add_argument(
        *("--launch",),
        type=milliseconds,
        default=LAUNCH,
        metavar="MS",
        help=f"milliseconds to start a collective (default: {1e3 * LAUNCH:g})",
    )
    network.add_argument(
        *("--latency",),
        type=milliseconds,
        default=LATENCY,
        metavar="MS",
        help=f"milliseconds of a round of messages (default: {1e3 * LATENCY:g})",
    )
    network.add_argument(
        *("--slowdown",),
        type=float,
        default=SLOWDOWN,
        metavar="FACTOR",
        help=f"of backpropagation while something is sent (default: {SLOWDOWN})",
    )
    options = parser.parse_args(arguments)
    if not 1 <= options.slowdown < float("inf"):
        parser.error(f"--slowdown must be a number from 1, not {options.slowdown}")
    if max(options.workers) == 1:
        parser.error("--workers needs a number from 2: 1 worker sends nothing")
    if options.plot:
        if not Path(options.plot).parent.is_dir():
            parser.error(f"--plot: there is no folder {Path(options.plot).parent}")
        try:
            forecast.require_matplotlib()
        except ImportError as error:
            parser.error(str(error))
    return options


def plan(options: argparse.Namespace) -> forecast.Forecast:
    """Measures the model on this machine, says what that takes, and returns the predictions.

    Raises:
      UsageError: if the model or its batch cannot be used, or the native ops were not built for
        this machine's device.
    """
    make_batch = load_function(options.batch, "--batch") if options.batch else None
    make_model = load_function(options.model, "--model")
    subject = make_subject(make_model, options.batch_size, make_batch)
    compute = measure.measure_compute(subject, options.repeats)
    values = measure.compute_gradients(subject)
    gradients = measure.describe(subject, values)
    elements = sum(g.elements for g in gradients.gradients if g is not None and not g.sparse)
    sparse = f", {len(gradients.sparse_bytes)} sparse" if gradients.sparse_bytes else ""
    print(f"{options.model}: {elements:,} elements of dense gradients{sparse}")
    print(
        f"a step alone with batch size {options.batch_size}: {1e3 * compute.total:.1f} ms (forward "
        f"{1e3 * compute.forward:.1f}, backward {1e3 * compute.backward:.1f}, update "
        f"{1e3 * compute.update:.1f})"
    )
    costs: dict[str, dict[str, CodecCost]] = {}
    for choice in CHOICES:
        costs[choice.name] = measure.measure_codec(choice, gradients, values, options.repeats)
        for wire, cost in costs[choice.name].items():
            if wire == ROWS:
                print(
                    f"{choice.name}, rows: {cost.bits / 8:,.0f} bytes for sparse gradients of "
                    f"{sum(gradients.sparse_bytes):,}; encodes them in {1e3 * cost.encode:.2f} ms, "
                    f"decodes those of 2 workers in {1e3 * cost.sum_of(2):.2f}"
                )
                continue
            print(
                f"{choice.name}, {wire}: {cost.bits:.3f} bits an element; encodes "
                f"{1e-6 / cost.encode:,.0f} million elements a second, decodes "
                f"{1e-6 / cost.sum_of(2):,.0f} million of 2 workers"
            )

    @functools.cache
    def predicted(choice: Choice, workers: int, rate: float) -> Prediction:
        link = Link(workers, rate, options.launch, options.latency, options.transport)
        return predict(choice, gradients, compute, costs, link, options.slowdown)

    workers, rates = (tuple(dict.fromkeys(values)) for values in (options.workers, options.rate))
    return forecast.Forecast(CHOICES, workers, rates, predicted)


def main(arguments: list[str] | None = None) -> None:
    """Runs the program."""
    options = parse(arguments)
    try:
        planned = plan(options)
    except UsageError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        sys.exit(f"error: {error}")
    print(f"\n{forecast.table(planned)}\n\n{forecast.words(planned)}")
    if options.plot:
        title = f"{options.model}, batch size {options.batch_size} a worker"
        try:
            forecast.draw(planned, title, options.plot)
        except (OSError, ValueError) as error:
            sys.exit(f"error: --plot: {error}")
        print(f"\nwritten: {options.plot}")


if __name__ == "__main__":
    main()
