"""Step time over network links: stock MultiWorkerMirroredStrategy against compression and peers.

Starts worker processes in network namespaces whose links have a given rate (Linux, as root; see
network_links.py), a job of them for each mode, and has the jobs make training steps in turn.
Prints the median times of a step on worker 0, their ratio to the stock strategy, and the bytes
that a worker sends in a step, counted at its network interface. The last column leaves out headers
and what TCP sent twice. Writes results/network_MODEL.json and .png and, for several numbers of
workers, network_MODEL_workers.png.

    sudo python benchmarks/network.py --model lstm --workers 2 3 4 --rates 100mbit 1gbit none

Modes: `stock`; `stock:4`, the same with gradients in packs of 4 MB, whose sums overlap with
backpropagation (`bytes_per_pack`); `alone`, which computes the same step on every worker and sends
nothing; `none`; `default` is tf_gc's default, `fixed` and `auto` are its two-bit codecs, `4 bits`
and `8 bits` finer ones; `dense only` is the default without sparse gradients; `rank 4` sends low
rank; `bfloat16` and `float16` cast.
`default:all_gather` forces a plan, `default:compact` a wire, `default:compact:all_gather` both.
Without a wire tf_gc chooses one by the rate that it measures when the workers start, before links
are shaped; so name the wire that it would choose. The peers are PyTorch's DDP and its hooks;
network_peers.py says how to install and name them, and they are not among the default modes. If a
peer's job hangs or fails, table and JSON say so, and it is started again for the next round. Any
other failure ends the run.
"""

import argparse
import os
import signal
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import network_links
import network_peers
import network_plot
import numpy as np
import report
from network_jobs import Job, JobError, Jobs
from network_links import Links

MODES: dict[str, dict[str, Any] | None] = {
    "stock": None,
    "alone": None,
    "none": {"type": "none"},
    "fixed": {"type": "2bit", "threshold": 0.01},
    "auto": {"type": "2bit"},
    "default": {"type": "quantized"},
    "4 bits": {"type": "quantized", "bits": 4},
    "8 bits": {"type": "quantized", "bits": 8},
    "dense only": {"type": "quantized", "sparse": False},
    "rank 1": {"type": "low_rank", "rank": 1},
    "rank 2": {"type": "low_rank", "rank": 2},
    "rank 4": {"type": "low_rank", "rank": 4},
    "rank 8": {"type": "low_rank", "rank": 8},
    "bfloat16": {"type": "bfloat16"},
    "float16": {"type": "float16"},
}
WIRES = ["packed", "compact"]
# The keys of models.MODELS, which would bring TensorFlow into this process.
MODELS = ["mlp", "lstm", "prose", "vgg", "resnet", "small", "tiny", "recommender", "adagrad"]
WORKER = Path(__file__).with_name("network_worker.py")
SENT = ("sent_bytes", "sent_packets", "repeated_segments")  # by a worker in a step
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def compression_params(mode: str) -> dict[str, Any] | None:
    """Returns the params of a mode such as "default:compact"; a ValueError if there is none."""
    if network_peers.peer(mode) or is_stock(mode):
        return None
    name, *words = mode.split(":")
    forced = {"wire" if word in WIRES else "plan": word for word in words}
    if name not in MODES or len(forced) < len(words) or (forced and MODES[name] is None):
        raise ValueError(
            f"a mode is one of {[*MODES, *network_peers.FORMS]} or like 'default:compact' or "
            f"'default:packed:all_gather', got {mode!r}"
        )
    params = MODES[name]
    return {**params, **forced} if params else params


def is_stock(mode: str) -> bool:
    """Whether a mode is the stock strategy, with packs of whatever size."""
    name, _, megabytes = mode.partition(":")
    return name == "stock" and float(megabytes or 1) > 0


def start_job(mode: str, options: argparse.Namespace, links: Links) -> Job:
    shared = ("model", "batch_size", "threads", "step_limit")
    task = {"mode": mode, **{name: vars(options)[name] for name in shared}}
    peer = network_peers.peer(mode)
    if peer:
        program = [options.torch_python, str(network_peers.WORKER)]
        task |= {"hook": peer.hook, "rank": peer.rank, "interface": links.interface}
    else:
        program = [sys.executable, str(WORKER)]
        task["compression_params"] = compression_params(mode)
    return Job(program, task, links, options.limit)


def start_jobs(jobs: Jobs, modes: Sequence[str], workers: int) -> None:
    for mode in modes:
        if "failure" in attempt(jobs, mode, lambda _: {}):
            continue
        gigabytes = max(one["memory_bytes"] for one in jobs.started[mode]) / 1e9
        print(f"{workers} workers, {mode}: started, {gigabytes:.2f} GB each", flush=True)
    counts = {mode: started[0]["parameters"] for mode, started in jobs.started.items()}
    if len(set(counts.values())) > 1:
        raise RuntimeError(f"the modes do not train the same model; parameters: {counts}")


def attempt(jobs: Jobs, mode: str, act: Callable[[Job], dict[str, Any]]) -> dict[str, Any]:
    """Returns what `act` makes of a mode's job.

    If the job is a peer's and fails, it is ended, and {"failure": "hung" or "failed"} returned.
    """
    try:
        return act(jobs.get(mode))
    except JobError as error:
        if not network_peers.peer(mode):
            raise
        jobs.end(mode)
        print(error, flush=True)
        return {"failure": "hung" if error.hung else "failed"}


def measure_round(job: Job, links: Links, steps: int) -> dict[str, Any]:
    """Returns each worker's median seconds and bytes a step, and those of `strategy.traffic`."""
    job.run(1)
    before = np.array(links.sent())
    seconds = job.run(steps)
    sent = (np.array(links.sent()) - before) / steps
    return {
        "seconds": [statistics.median(of_worker) for of_worker in seconds],
        "sent_bytes": sent[:, 0].tolist(),
        "sent_packets": sent[:, 1].tolist(),
        "repeated_segments": sent[:, 2].tolist(),
        "predicted_bytes": job.predicted_bytes,
    }


def measure_rate(
    jobs: Jobs, links: Links, rate: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Measures all modes in alternation over links of one rate."""
    links.set_rate(rate)
    speed = network_links.bits_per_second(rate) or 8e9
    reached = jobs.get("stock").bits_per_second(max(1_000_000, round(0.5 * speed / 8)))
    print(f"{rate}: a TCP connection reaches {reached / 1e6:,.0f} Mbit/s", flush=True)
    rounds: dict[str, list[dict[str, Any]]] = {mode: [] for mode in options.modes}
    for number in range(options.rounds):
        for mode, done in rounds.items():
            done.append(attempt(jobs, mode, lambda job: measure_round(job, links, options.steps)))
            outcome = done[-1].get("failure") or f"{done[-1]['seconds'][0]:.4f} s"
            print(f"{rate}, round {number + 1}, {mode}: {outcome}", flush=True)
    stocks = {
        mode: statistics.median(one["seconds"][0] for one in done)
        for mode, done in rounds.items()
        if is_stock(mode)
    }
    best = min(stocks, key=stocks.__getitem__)
    return {
        "tcp_bits_per_second": reached,
        "best_stock": best,
        "modes": {
            mode: {
                **summarize(done, rounds["stock"], rounds[best]),
                "predicted_bytes": predicted_bytes(mode, jobs.started, done),
                "rounds": done,
            }
            for mode, done in rounds.items()
        },
    }


def summarize(
    rounds: Sequence[Mapping[str, Any]],
    stock: Sequence[Mapping[str, Any]],
    best_stock: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Returns medians over the rounds that did not fail, `None` if there is no such round."""
    done = [i for i, mine in enumerate(rounds) if "failure" not in mine]
    if not done:
        return dict.fromkeys(("seconds", "of_stock", "of_best_stock", *SENT))
    seconds = [[of[i]["seconds"][0] for i in done] for of in (rounds, stock, best_stock)]
    mine, of_stock, of_best = seconds
    return {
        "seconds": statistics.median(mine),
        "of_stock": statistics.median(a / b for a, b in zip(mine, of_stock, strict=True)),
        "of_best_stock": statistics.median(a / b for a, b in zip(mine, of_best, strict=True)),
        **{
            name: round(statistics.median(statistics.mean(rounds[i][name]) for i in done))
            for name in SENT
        },
    }


def data_bytes(one: Mapping[str, Any]) -> float:
    """Returns what a worker sent in a step of a round, without headers and what TCP repeated.

    A segment that was dropped before it was counted is taken off although it was counted once.
    """
    sent, packets, repeated = (statistics.mean(one[name]) for name in SENT)
    return sent - network_links.HEADER_BYTES * packets - network_links.SEGMENT_BYTES * repeated


def predicted_bytes(
    mode: str,
    started: Mapping[str, Sequence[Mapping[str, Any]]],
    rounds: Iterable[Mapping[str, Any]],
) -> int | None:
    """Returns what a mode's workers say that each sends in a step, if they do.

    `strategy.traffic` of another mode says what the stock strategy sends. With the compact wire the
    bytes differ from step to step, and this is the median over the rounds.
    """
    if mode == "alone":
        return 0
    own = [one["predicted_bytes"] for one in rounds if one.get("predicted_bytes") is not None]
    if own:
        return round(statistics.median(own))
    if network_peers.peer(mode):
        return None
    others = [one[0]["stock_bytes"] for one in started.values()]
    return next((size for size in others if size is not None), None)


def print_table(workers: int, rates: dict[str, Any]) -> None:
    print(
        f"\n{f'{workers} workers':24}{'ms per step':>12}{'of stock':>10}{'faster':>8}{'of best':>8}"
        f"{'bytes sent':>14}{'predicted':>14}{'ratio':>7}{'of data':>8}"
    )
    for rate, result in rates.items():
        print(f"{rate}: the best stock setting is {result['best_stock']}")
        for mode, row in result["modes"].items():
            line = f"{f'{rate} {mode}':24}"
            if row["seconds"] is not None:
                predicted = row["predicted_bytes"]
                data = statistics.median(
                    data_bytes(one) for one in row["rounds"] if "failure" not in one
                )
                ratios = [
                    f"{sent / predicted:.3f}" if predicted else "-"
                    for sent in (row["sent_bytes"], data)
                ]
                line += (
                    f"{1e3 * row['seconds']:12.1f}{row['of_stock']:10.3f}"
                    f"{1 / row['of_stock']:7.2f}x{1 / row['of_best_stock']:7.2f}x"
                    f"{row['sent_bytes']:14,}"
                    f"{'-' if predicted is None else format(predicted, ','):>14}"
                    f"{ratios[0]:>7}{ratios[1]:>8}"
                )
            failures = [one["failure"] for one in row["rounds"] if "failure" in one]
            for failure in sorted(set(failures)):
                line += f"  {failure} in {failures.count(failure)} of {len(row['rounds'])} rounds"
            print(line)


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
    parser.add_argument("--step-limit", type=float, default=60, help="seconds; longer is a hang")
    parser.add_argument(
        "--torch-python", default=sys.executable, help="the Python that has PyTorch, for its modes"
    )
    parser.add_argument("--name", help="of the files written; network_MODEL by default")
    parser.add_argument("--no-picture", action="store_true", help="write the JSON alone")
    options = parser.parse_args()
    if obstacle := network_links.why_not_shaped():
        parser.error(f"links cannot be shaped: {obstacle}")
    try:
        for rate in options.rates:
            network_links.bits_per_second(rate)
        for mode in options.modes:
            compression_params(mode)
        options.torch = network_peers.check(options.modes, options.model, options.torch_python)
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
    result: dict[str, Any] = {
        # Where a Python is says nothing to others.
        "options": {name: it for name, it in vars(options).items() if name != "torch_python"},
        "network": Links.description,
        "congestion_control": Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        "load_before": os.getloadavg()[0],
        "workers": {},
    }
    try:
        for workers in options.workers:
            with (
                Links(workers) as links,
                Jobs(lambda mode, links=links: start_job(mode, options, links)) as jobs,
            ):
                start_jobs(jobs, options.modes, workers)
                result["parameters"] = jobs.started["stock"][0]["parameters"]
                rates: dict[str, Any] = {}
                result["workers"][str(workers)] = {
                    "memory_bytes": {
                        mode: started[0]["memory_bytes"] for mode, started in jobs.started.items()
                    },
                    "rates": rates,
                }
                for rate in options.rates:
                    rates[rate] = measure_rate(jobs, links, rate, options)
                    path = report.write(options.name, result)
            print_table(workers, rates)
    except RuntimeError as error:
        sys.exit(f"error: {error}")
    print(f"{options.model}: {result['parameters']:,} parameters, {report.machine()['cpu']}")
    print(f"written: {path}")
    if not options.no_picture:
        network_plot.draw(result, path)
        print(f"written: {path.with_suffix('.png')}")


if __name__ == "__main__":
    main()
