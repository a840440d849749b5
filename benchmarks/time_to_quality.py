"""Loss against the clock: real training of workers over links of several rates.

Trains a task of quality.py for each mode and seed, and measures the loss on test data every few
steps. The link changes no result of a step. So a run covers all rates: between two
measurements some steps are made over links of each rate, and each rate has its own clock, by which
all steps take as long as those do on average. The time of the measurements does not count. At 100
Mbit/s codes travel by the compact wire, at higher rates packed, each in a run of its own; both give
the same losses, which is checked.

The goal is the quality of the stock strategy at its end, for the same seed. Compressed training
goes on for half as many steps more, to reach it later if it is behind. Losses are means
of three measurements. The picture has the mean of all seeds, and a band from the least to the
greatest of them. Writes results/time_to_quality_TASK.json after each seed, and .png at the end.
Needs root, as network.py. (Recorded seeds with a `clock_of` were trained on another machine and go
by the clock of that seed.)

    sudo python benchmarks/time_to_quality.py --rank 2
    sudo python benchmarks/time_to_quality.py --rank 2 --workers 4 \
        --name time_to_quality_mnist_4_workers
    sudo python benchmarks/time_to_quality.py --task Bible --rate 0.04 --steps 286
    sudo python benchmarks/time_to_quality.py --task ResNet-20 --steps 286
"""

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import network_links
import numpy as np
import report
from matplotlib import pyplot as plt
from matplotlib import ticker
from network_jobs import Job
from overview import GREY, INK, ORANGE, STYLE, finish
from quality_tasks import TASKS

WORKER = Path(__file__).with_name("time_to_quality_worker.py")
# How many steps between two measurements are made at each rate. The slowest links get few.
STEPS = {"100mbit": 5, "1gbit": 7, "10gbit": 14}
SLOW, FAST = ("100mbit",), ("1gbit", "10gbit")
MORE = 1.5  # times as many steps are made with compression
SMOOTHED = 3  # measurements whose mean is a loss
# The curves of the picture, by their labels: mode, color and width. `None` is the better packing.
LINES = {
    "stock strategy": (None, INK, 1.8),
    "16 bits": ("bfloat16", "#4c8f5a", 1.4),
    "tf_gc": ("3 bits", ORANGE, 2.6),
}


def runs_of(rank: int) -> list[tuple[str, dict[str, Any] | None, Sequence[str]]]:
    """Returns by mode, its parameters and the rates of each of its runs.

    `stock:1` is the stock strategy with its gradients in packs of 1 MB.
    """
    return [
        ("stock", None, [*SLOW, *FAST]),
        ("stock:1", None, [*SLOW, *FAST]),
        ("bfloat16", {"type": "bfloat16"}, [*SLOW, *FAST]),
        ("3 bits", {"type": "quantized", "wire": "compact"}, SLOW),
        ("3 bits", {"type": "quantized", "wire": "packed"}, FAST),
        ("2 bits", {"type": "2bit", "wire": "compact"}, SLOW),
        ("2 bits", {"type": "2bit", "wire": "packed"}, FAST),
        (f"rank {rank}", {"type": "low_rank", "rank": rank}, [*SLOW, *FAST]),
    ]


def train(
    mode: str,
    params: dict[str, Any] | None,
    rates: Sequence[str],
    seed: int,
    links: network_links.Links,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Trains once; returns losses, and by rate the mean seconds of a step in each segment."""
    task = {
        "mode": mode,
        "compression_params": params,
        "model": options.task,
        "seed": seed,
        "rate": options.rate,
        "workers": options.workers,
        "threads": 1,
        "step_limit": 120,
    }
    links.set_rate("none")
    job = Job([sys.executable, str(WORKER)], task, links, options.limit)
    losses = [job.ask()["test_loss"]]
    seconds: dict[str, list[float]] = {rate: [] for rate in rates}
    segment = sum(STEPS.values())
    steps = dict(STEPS)
    if len(rates) < len(STEPS):  # the steps of the other rates, over links without a limit
        steps = {"none": segment - sum(STEPS[rate] for rate in rates)}
        steps |= {rate: STEPS[rate] for rate in rates}
    for _ in range(round(options.steps * (MORE if params else 1) / segment)):
        for rate, count in steps.items():
            links.set_rate(rate)
            of_workers = job.run(count)
            if rate in seconds:
                seconds[rate].append(statistics.mean(of_workers[0]))
        links.set_rate("none")
        state = job.ask()
        losses.append(state["test_loss"])
    result = {
        "losses": losses,
        "warm_up_steps": state["warm_up_steps"],
        "seconds": seconds,
        "sent_bytes": job.predicted_bytes,
        "parameters": job.started[0]["parameters"],
    }
    job.close()
    return result


def after_warm_up(run: Mapping[str, Any], rate: str) -> list[float]:
    """Returns the seconds of a step in each segment that begins after the warm-up."""
    return run["seconds"][rate][-(-run["warm_up_steps"] // sum(STEPS.values())) :]


def clock(run: Mapping[str, Any], rate: str, stock: Mapping[str, Any]) -> list[float]:
    """Returns the seconds of training at a rate at which each loss was measured.

    Steps of the warm-up, which are in full precision, take as long as stock steps
    do on average: some rates had none of them.
    """
    segment = sum(STEPS.values())
    plain = statistics.mean(stock["seconds"][rate])
    settled = after_warm_up(run, rate)[0]
    times = []
    for number, seconds in enumerate(run["seconds"][rate]):
        warming = min(max(run["warm_up_steps"] - number * segment, 0), segment)
        rest = settled if warming else seconds
        times.append(warming * plain + (segment - warming) * rest)
    return list(itertools.accumulate(times, initial=0.0))


def smoothed(run: Mapping[str, Any]) -> list[float]:
    """Returns losses, each the mean of a measurement and those before."""
    losses = run["losses"]
    return [statistics.mean(losses[max(0, i + 1 - SMOOTHED) : i + 1]) for i in range(len(losses))]


def seconds_until(run: Mapping[str, Any], rate: str, stock: Mapping[str, Any]) -> float | None:
    """Returns when a run first has the last loss of the stock run, `None` if it never has."""
    loss = smoothed(stock)[-1]
    reached = (
        second
        for second, mine in zip(clock(run, rate, stock), smoothed(run), strict=True)
        if mine <= loss
    )
    return next(reached, None)


def summarize(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns by rate and mode the medians over seeds of a step and of the time to quality."""
    stock = {run["seed"]: run for run in runs if run["mode"] == "stock"}
    table: dict[str, Any] = {}
    for rate in STEPS:
        for mode in dict.fromkeys(run["mode"] for run in runs):
            mine = [run for run in runs if run["mode"] == mode and rate in run["seconds"]]
            if not mine:
                continue
            until = [seconds_until(run, rate, stock[run["seed"]]) for run in mine]
            reached = [seconds for seconds in until if seconds is not None]
            table.setdefault(rate, {})[mode] = {
                "ms_a_step": 1e3
                * statistics.median(s for run in mine for s in after_warm_up(run, rate)),
                "last_loss": statistics.median(smoothed(run)[-1] for run in mine),
                "seconds_to_quality": statistics.median(reached) if reached else None,
                "reached": f"{len(reached)} of {len(mine)}",
            }
    return table


def result_of(runs: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    table = summarize(runs)
    parameters = runs[0]["parameters"]
    return {"options": vars(options), "parameters": parameters, "table": table, "runs": runs}


def print_table(table: Mapping[str, Any]) -> None:
    print(f"{'':18}{'ms a step':>10}{'last loss':>11}{'s to quality':>14}{'reached':>9}")
    for rate, modes in table.items():
        for mode, row in modes.items():
            until = row["seconds_to_quality"]
            shown = "never" if until is None else f"{until:.1f}"
            print(
                f"{f'{rate} {mode}':18}{row['ms_a_step']:10.1f}{row['last_loss']:11.4f}"
                f"{shown:>14}{row['reached']:>9}"
            )


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draws a panel for each rate, by one scale of seconds. Other modes are in the table."""
    plt.rcParams.update(STYLE)
    figure, every_axes = plt.subplots(1, len(STEPS), figsize=(11.5, 4.1), sharex=True, sharey=True)
    stock = {run["seed"]: run for run in result["runs"] if run["mode"] == "stock"}
    goal = np.mean([smoothed(run)[-1] for run in stock.values()])
    for axes, rate in zip(every_axes, STEPS, strict=True):
        until = {mode: row["seconds_to_quality"] for mode, row in result["table"][rate].items()}
        best = min(("stock", "stock:1"), key=lambda mode: until[mode])
        for label, (mode, color, width) in LINES.items():
            mode = mode or best
            runs = [r for r in result["runs"] if r["mode"] == mode and rate in r["seconds"]]
            seconds = np.mean([clock(run, rate, stock[run["seed"]]) for run in runs], 0)
            losses = np.array([smoothed(run) for run in runs])
            axes.plot(seconds, losses.mean(0), color=color, linewidth=width)
            axes.fill_between(seconds, losses.min(0), losses.max(0), color=color, alpha=0.15, lw=0)
            if axes is every_axes[0]:  # above the middle of the slowest, behind the others' ends
                at, offset = (len(seconds) // 2, (0, 7)) if mode == best else (-1, (5, -9))
                style = {"textcoords": "offset points", "color": color, "weight": "bold"}
                axes.annotate(label, (seconds[at], losses.mean(0)[at]), offset, **style)
        axes.axhline(goal, color=GREY, linestyle=(0, (3, 2)), linewidth=1.2)
        axes.set_title(f"{network_links.label(rate)}: {until[best] / until['3 bits']:.1f} ×")
        axes.set(xlabel="seconds of training", yscale="log")
        axes.grid(axis="y", color="#e6e6e6")
    every_axes[0].set(ylabel="test loss", xlim=(0, None))
    every_axes[0].yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 3, 5, 7)))
    every_axes[0].yaxis.set_major_formatter("{x:g}")
    every_axes[0].yaxis.set_minor_formatter("")
    figure.suptitle(
        f"{result['options']['task']}, {result['parameters'] / 1e6:.1f} million parameters, "
        f"{result['options']['workers']} workers: test loss over seconds of training",
        weight="bold",
    )
    finish(
        figure,
        f"benchmarks/results: {path.stem}; means and range of {len(stock)} seeds, one thread a "
        "worker. tf_gc: the default, three bits; 16 bits: its bfloat16.\n"
        "×: how many times as soon the default has the stock strategy's last loss (dashed), "
        "medians; stock with the better of two bytes_per_pack.",
    )
    figure.savefig(path.with_suffix(".png"), dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", default="MNIST", help="of quality_tasks.TASKS, with labels")
    parser.add_argument("--rate", type=float, default=0.002, help="learning rate of Adam")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=468, help="of the stock strategy")
    parser.add_argument("--rank", type=int, default=4, help="of the matrices sent as low rank")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=900, help="seconds between two measurements")
    parser.add_argument("--name", help="of the files written; time_to_quality_TASK by default")
    parser.add_argument("--draw", action="store_true", help="only the picture of a recorded JSON")
    options = parser.parse_args()
    name = options.name or f"time_to_quality_{options.task.lower().replace('-', '_')}"
    path = report.RESULTS / f"{name}.json"
    if options.draw:
        draw(json.loads(path.read_text()), path)
        return
    if obstacle := network_links.why_not_shaped():
        parser.error(f"links cannot be shaped: {obstacle}")
    TASKS[options.task].load()  # while there is a network to download from
    runs: list[dict[str, Any]] = []
    with network_links.Links(options.workers) as links:
        for seed in range(1, options.seeds + 1):
            for mode, params, rates in runs_of(options.rank):
                run = train(mode, params, rates, seed, links, options)
                for other in runs:
                    if (other["mode"], other["seed"]) == (mode, seed):
                        assert other["losses"] == run["losses"], "the wire changes what is trained"
                runs.append({"mode": mode, "seed": seed, **run})
                print(f"seed {seed}, {mode} at {', '.join(rates)}: {run['losses'][-1]}", flush=True)
            report.write(name, result_of(runs, options))
    result = result_of(runs, options)
    print_table(result["table"])
    draw(result, path)
    print(f"written: {path} and {path.with_suffix('.png')}")


if __name__ == "__main__":
    main()
