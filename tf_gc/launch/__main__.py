"""The program `python -m tf_gc.launch`: its options, and where they say that the tasks are."""

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tf_gc.launch import processes, slurm, tasks
from tf_gc.launch.tasks import Task


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of the options."""
    parser = argparse.ArgumentParser(
        prog="python -m tf_gc.launch",
        description="Starts a program as each task of a job, with its TF_CONFIG: on this host "
        "(--workers), on several (--hosts, the same line on each), as a task of Slurm (srun), or "
        "in a pod of an indexed Job of Kubernetes (--service).",
    )
    add, place = parser.add_argument, parser.add_mutually_exclusive_group().add_argument
    add("--workers", type=int, metavar="N", help="on this host, or in pods")
    place("--servers", type=int, metavar="N", help="parameter servers here, and a chief")
    place("--hosts", metavar="HOST[:PORT],...", help="all hosts, in the same order on each")
    place("--service", metavar="NAME", help="the headless service of the pods")
    add("--evaluator", action="store_true", help="an evaluator here")
    add("--workers-per-host", type=int, metavar="N", help="(default: 1)")
    add("--index", type=int, metavar="N", help="of this host, if its addresses do not identify it")
    add("--port", type=int, help="of a host's first worker (default: 8888)")
    add("--restarts", type=int, default=0, metavar="N", help="of each task (default: 0)")
    add("--grace", type=int, default=30, metavar="SECONDS", help="until tasks are killed (30)")
    add("--logs", type=Path, metavar="DIR", help="for the output of all tasks except the first")
    add("--dry-run", action="store_true", help="print the TF_CONFIG of each task")
    add("-m", nargs=argparse.REMAINDER, metavar="MODULE", help="a module, and its arguments")
    add("program", nargs="?")
    add("arguments", nargs=argparse.REMAINDER, help="of the program")
    return parser


def find_tasks(options: argparse.Namespace) -> tuple[list[Task], list[Task]]:
    """Returns the tasks of the job, and those of this launcher.

    Raises:
      ValueError: if the options do not go together, or do not say who the tasks are.
      RuntimeError: if they are to be those of Slurm, and `srun` has not started this process.
    """
    hosts = options.hosts is not None
    local = options.workers is not None and options.service is None
    for name, least, is_there, place in (
        ("--workers", 1, not hosts, "one host; with --hosts it is --workers-per-host"),
        ("--hosts", " ", True, ""),
        ("--service", " ", options.workers is not None, "--workers, the number of pods"),
        ("--servers", 1, local, "--workers"),
        ("--evaluator", False, local, "--workers, on one host"),
        ("--workers-per-host", 1, hosts, "--hosts"),
        ("--index", 0, hosts, "--hosts"),
        ("--port", 1, not local, "other hosts; with --workers ports are free ones"),
        ("--restarts", 0, True, ""),
        ("--grace", 0, True, ""),
    ):
        value = vars(options)[name[2:].replace("-", "_")]
        if value is None or value is False:
            continue
        if not is_there:
            raise ValueError(f"{name} needs {place}")
        if value < least:
            wrong = f"must be at least {least}, got {value}" if value != "" else "is empty"
            raise ValueError(f"{name} {wrong}")
    port = options.port or 8888
    if port > tasks.MAX_PORT:
        raise ValueError(f"--port must be at most {tasks.MAX_PORT}, got {port}")
    if options.hosts:
        per_host = options.workers_per_host or 1
        return tasks.on_hosts(options.hosts, port, per_host, options.index)
    if options.service:
        return tasks.in_pods(options.service, options.workers, port)
    if options.workers:
        here = tasks.on_this_host(options.workers, options.servers or 0, options.evaluator)
        return here, here
    if "SLURM_PROCID" not in os.environ:
        raise ValueError("say where the workers are: --workers or --hosts, or use srun")
    addresses, rank = slurm.tasks_of_step(port)
    everybody = tasks.tasks_of({"worker": len(addresses)}, addresses)
    return everybody, [everybody[rank]]


def find_program(options: argparse.Namespace) -> list[str]:
    """Returns the command of all tasks; ValueError if there is no such program."""
    if options.m is None:
        if not os.path.isfile(options.program or ""):
            raise ValueError(f"there is no program {options.program or ''}")
        return [sys.executable, options.program, *options.arguments]
    # What is above a module may not be imported: it may import TensorFlow.
    if not options.m or importlib.util.find_spec(options.m[0].partition(".")[0] or "-") is None:
        raise ValueError(f"there is no module {' '.join(options.m[:1])}")
    return [sys.executable, "-m", *options.m]


def main() -> int:
    """Runs the job; returns the exit status."""
    processes.write(b"")  # before a file takes the place of a closed stderr
    parser = make_parser()
    options = parser.parse_args()
    try:
        everybody, here = find_tasks(options)
        if options.dry_run:
            print(*(f"{task}: {task.tf_config}" for task in everybody), sep="\n")
            return 0
        command = find_program(options)
        tasks.check(everybody, here, pods=options.service is not None)
        logs = options.logs or Path(tempfile.mkdtemp(prefix="tf_gc_launch_"))
        try:
            job = processes.Processes(here, command, logs, options.restarts, options.grace)
        except OSError as error:
            raise ValueError(f"--logs {logs}: {error}") from error
    except (OSError, RuntimeError, ValueError) as error:
        parser.error(str(error))
    mine, others = (
        ", ".join(f"{t} at {t.address}" if t.address else str(t) for t in group)
        for group in (here, [task for task in everybody if task not in here])
    )
    elsewhere = f"; elsewhere {others}" if others else ""
    where = f"; all but the first write to {logs}" if len(here) > 1 else ""
    processes.say(f"starts {mine}{elsewhere}{where}")
    status = job.run()
    if status:
        processes.say(f"ends with status {status}; logs are in {logs}")
    elif not options.logs:
        shutil.rmtree(logs, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
