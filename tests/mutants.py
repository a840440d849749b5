"""Puts faults into a room of tf_gc, one at a time, and shows those that its tests let through.

Usage: python tests/mutants.py ROOM NUMBER SEED TEST ...
"""

import difflib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

ROOT = Path(__file__).parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
# "|" is mostly in hints, which no program runs; the other one fails on names with a dot.
LEFT_OUT = ("core/ReplaceBinaryOperator_BitOr", "core/ExceptionReplacer")


def places_of(source: str) -> list[list[tuple[Any, int]]]:
    """Returns for each place its faults: an operator, and the number of the place among its own."""
    places: dict[Any, list[tuple[Any, int]]] = {}
    nodes = [*ast_nodes(get_ast(source))]
    for name in plugins.operator_names():
        kind = plugins.get_operator(name)
        if not kind.arguments() and not name.startswith(LEFT_OUT):
            found = [place for node in nodes for place in kind().mutation_positions(node)]
            for i, (start, _) in enumerate(found):
                places.setdefault(start, []).append((kind(), i))
    return [*places.values()]


def outcome(tree: Path, tests: list[str], limit: float | None = None) -> str:
    """Runs tests in a copy of the repository, up to the first red one."""
    # Two faults of one size within a second would share their bytecode.
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    out: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    options: Any = {"cwd": tree, "env": environment, "start_new_session": True, **out}
    process = subprocess.Popen([*PYTEST, *tests], **options)
    try:
        return "red" if process.wait(limit) else "green"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return f"red: no end in {limit:.0f} s"


def main(room: str, number: str, seed: str, *tests: str) -> None:
    files = [*ROOT.glob(f"tf_gc/{room}/**/*.py"), *ROOT.glob(f"tf_gc/{room}.py")]
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(files)}
    places = [(path, place) for path, source in sources.items() for place in places_of(source)]
    chosen = random.Random(int(seed))
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "site"))
        start = time.monotonic()
        if outcome(tree, [*tests]) != "green":
            sys.exit(f"the tests have to be green before: {' '.join(tests)}")
        limit = 60 + 3 * (time.monotonic() - start)
        for path, place in chosen.sample(places, min(int(number), len(places))):
            mutant = mutate_code(sources[path], *chosen.choice(place))
            (tree / path).write_text(mutant)
            found = outcome(tree, [*tests], limit)
            (tree / path).write_text(sources[path])
            before, after = (text.splitlines() for text in (sources[path], mutant))
            print(
                found, *difflib.unified_diff(before, after, path, path, n=1, lineterm=""), sep="\n"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
