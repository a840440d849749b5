"""Step time over network links: stock MultiWorkerMirroredStrategy against compression.

Starts worker processes in network namespaces whose links have a given rate (Linux, as root; see
network_links.py), a job of them for each mode, and has the jobs make training steps in turn.
Prints the median times of a step on worker 0, their ratio to the stock strategy, and the bytes
that a worker sends in a step, counted at its network interface. Writes results/network_MODEL.json
and .png and, for several numbers of workers, network_MODEL_workers.png. Without root the workers
talk over loopback, which is not shaped.

    sudo python benchmarks/network.py
    sudo python benchmarks/network.py --model lstm --workers 2 3 4 --rates 100mbit 1gbit none

Modes: `stock`; `alone`, which computes the same step on every worker and sends nothing; `none`,
`default` is tf_gc's default, `fixed` and `auto` are its two-bit codecs, `4 bits` a finer one.
`default:all_gather` forces a plan, `default:compact` a wire, `default:compact:all_gather` both.
Without a wire tf_gc chooses one by the rate that it measures when the workers start, before links
are shaped.
"""

import argparse
import contextlib
import os
import signal
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import network_links
import network_plot
import report
from network_jobs import Job, available_bytes

MODES: dict[str, dict[str, Any] | None] = {
    "stock": None,
    "alone": None,
    "none": {"type": "none"},
    "fixed": {"type": "2bit", "threshold": 0.01},
    "auto": {"type": "2bit"},
    "default": {"type": "quantized"},
    "4 bits": {"type": "quantized", "bits": 4},
}
WIRES = ["packed", "compact"]
# The keys of models.MODELS, which would bring TensorFlow into this process.
MODELS = ["mlp", "lstm", "vgg", "resnet", "small"]
FIRST_GUESS = 1_000_000_000  # memory of a worker, until one has run
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Network = network_links.Links | network_links.Loopback


def compression_params(mode: str) -> dict[str, Any] | None:
    """Returns the parameters of a mode such as "default" or "default:compact:all_gather".

    Raises:
      ValueError: if there is no such mode.
    """
    name, *words = mode.split(":")
    forced = {"wire" if word in WIRES else "plan": word for word in words}
    if name not in MODES or len(forced) < len(words) or (forced and MODES[name] is None):
        raise ValueError(
            f"a mode is one of {list(MODES)} or like 'default:compact' or "
            f"'default:packed:all_gather', got {mode!r}"
        )
    params = MODES[name]
    return {**params, **forced} if params else params


@contextlib.contextmanager
def start_jobs(options: argparse.Namespace, links: Network) -> Iterator[list[Job]]:
    """Starts a job for each mode, one after the other, and ends them all."""
    workers = len(links.addresses)
    largest = FIRST_GUESS
    with contextlib.ExitStack() as stack:
        jobs: list[Job] = []
        for mode in options.modes:
            if available_bytes() < workers * largest:
                raise RuntimeError(
                    f"{workers} more workers need about {workers * largest / 1e9:.1f} GB of "
                    f"memory, and {available_bytes() / 1e9:.1f} GB are left after "
                    f"{len(jobs)} of {len(options.modes)} modes: take fewer modes or workers"
                )
            task = {
                "mode": mode,
                "compression_params": compression_params(mode),
                **{name: vars(options)[name] for name in ("model", "batch_size", "threads")},
            }
            job = Job(task, links, options.limit)
            stack.callback(job.close)
            jobs.append(job)
            memory = [worker["memory_bytes"] for worker in job.started]
            largest = max(memory) if len(jobs) == 1 else max(largest, *memory)
            print(
                f"{workers} workers, {mode}: started, {max(memory) / 1e9:.2f} GB each", flush=True
            )
        yield jobs


def measure_round(job: Job, links: Network, steps: int) -> dict[str, Any]:
    """Returns each worker's median seconds and bytes sent per step, after a step to warm up.

    Returns as well what `strategy.traffic` says that the latest step has sent.
    """
    job.run(1)
    before = links.sent_bytes()
    seconds = job.run(steps)
    sent = [(end - start) / steps for start, end in zip(before, links.sent_bytes(), strict=True)]
    return {
        "seconds": report.medians(seconds),
        "sent_bytes": sent,
        "predicted_bytes": job.predicted_bytes,
    }


def measure_rate(
    jobs: list[Job], links: Network, rate: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Measures all modes in alternation over links of one rate."""
    links.set_rate(rate)
    speed = network_links.bits_per_second(rate) or 8e9
    reached = jobs[0].bits_per_second(max(1_000_000, round(0.5 * speed / 8)))
    print(f"{rate}: a TCP connection reaches {reached / 1e6:,.0f} Mbit/s", flush=True)
    rounds: dict[str, list[dict[str, Any]]] = {job.mode: [] for job in jobs}
    for number in range(options.rounds):
        for job in jobs:
            rounds[job.mode].append(measure_round(job, links, options.steps))
            seconds = rounds[job.mode][-1]["seconds"][0]
            print(f"{rate}, round {number + 1}, {job.mode}: {seconds:.4f} s", flush=True)
    stock = [one["seconds"][0] for one in rounds["stock"]]
    modes = {}
    for job in jobs:
        ours = [one["seconds"][0] for one in rounds[job.mode]]
        modes[job.mode] = {
            "seconds": statistics.median(ours),
            "of_stock": statistics.median(
                mine / its for mine, its in zip(ours, stock, strict=True)
            ),
            "sent_bytes": round(
                statistics.median(statistics.mean(one["sent_bytes"]) for one in rounds[job.mode])
            ),
            "predicted_bytes": predicted_bytes(job, jobs, rounds[job.mode]),
            "rounds": rounds[job.mode],
        }
    return {"tcp_bits_per_second": reached, "modes": modes}


def predicted_bytes(job: Job, jobs: Iterable[Job], rounds: Iterable[dict[str, Any]]) -> int | None:
    """Returns what `strategy.traffic` says that a worker sends in a step, if it does.

    That of the stock strategies is what another job's traffic compares itself with. With the
    compact wire it differs from step to step, and this is the median over the rounds.
    """
    if job.mode == "alone":
        return 0
    own = [one["predicted_bytes"] for one in rounds if one["predicted_bytes"] is not None]
    if own:
        return round(statistics.median(own))
    others = [one.started[0]["stock_bytes"] for one in jobs]
    return next((size for size in others if size is not None), None)


def print_table(workers: int, rates: dict[str, Any]) -> None:
    print(
        f"\n{f'{workers} workers':24}{'ms per step':>12}{'of stock':>10}{'faster':>8}"
        f"{'bytes sent':>14}{'predicted':>14}{'ratio':>7}"
    )
    for rate, result in rates.items():
        for mode, row in result["modes"].items():
            predicted = row["predicted_bytes"]
            bytes_ratio = f"{row['sent_bytes'] / predicted:.3f}" if predicted else "-"
            print(
                f"{f'{rate} {mode}':24}{1e3 * row['seconds']:12.1f}{row['of_stock']:10.3f}"
                f"{1 / row['of_stock']:7.2f}x{row['sent_bytes']:14,}"
                f"{'-' if predicted is None else format(predicted, ','):>14}{bytes_ratio:>7}"
            )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--batch-size", type=int, default=32, help="of one worker")
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument(
        "--rates", nargs="+", default=["100mbit", "1gbit", "10gbit"], help="none: not shaped"
    )
    parser.add_argument(
        "--modes", nargs="+", default=["stock", "none", "fixed", "auto", "default", "alone"]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="timed steps in a round")
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--limit", type=float, default=600, help="seconds for a round of a mode")
    parser.add_argument("--loopback", action="store_true", help="do not shape, even as root")
    parser.add_argument("--name", help="of the files written; network_MODEL by default")
    options = parser.parse_args()
    try:
        for rate in options.rates:
            network_links.bits_per_second(rate)
        for mode in options.modes:
            compression_params(mode)
    except ValueError as error:
        parser.error(str(error))
    if "stock" not in options.modes:
        parser.error("--modes needs stock, with which all are compared")
    if min(options.workers) < 2:
        parser.error("--workers needs 2 or more")
    for name in ("workers", "rates", "modes"):  # each once, in the order given
        setattr(options, name, list(dict.fromkeys(vars(options)[name])))
    options.name = options.name or f"network_{options.model}"
    return options


def stop(number: int, _: object) -> None:
    """Ends the program, and lets nothing disturb it while it cleans up."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> None:
    options = parse()
    for number in SIGNALS:
        signal.signal(number, stop)
    obstacle = "--loopback" if options.loopback else network_links.why_not_shaped()
    network: type[Network] = network_links.Links
    if obstacle:
        network = network_links.Loopback
        options.rates = [network_links.UNSHAPED]
        print(f"{network.description} ({obstacle})")
    result: dict[str, Any] = {
        "options": vars(options),
        "network": network.description,
        "congestion_control": Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        "load_before": os.getloadavg()[0],
        "workers": {},
    }
    try:
        for workers in options.workers:
            with network(workers) as links, start_jobs(options, links) as jobs:
                result["parameters"] = jobs[0].started[0]["parameters"]
                rates: dict[str, Any] = {}
                result["workers"][str(workers)] = {
                    "memory_bytes": {job.mode: job.started[0]["memory_bytes"] for job in jobs},
                    "rates": rates,
                }
                for rate in options.rates:
                    rates[rate] = measure_rate(jobs, links, rate, options)
                    path = report.write(options.name, result)
            print_table(workers, rates)
    except RuntimeError as error:
        sys.exit(f"error: {error}")
    print(f"{options.model}: {result['parameters']:,} parameters, {report.machine()['cpu']}")
    network_plot.draw(result, path)
    print(f"written: {path} and {path.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
