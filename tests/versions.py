"""Builds and tests tf_gc with versions of TensorFlow and Keras that `.venv` does not have.

Each pair gets an environment and a copy of the sources in `build/versions`, both removed when the
tests pass, and a row of the printed table.
"""

import argparse
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "versions"
OBJECTS = ROOT / "build" / "ops"

# The oldest Keras that tf_gc takes (TensorFlow 2.21 requires a newer one), and the newest that was
# tried.
OLDEST, NEWEST = "3.10", "3.15"
PAIRS = [
    *((f"2.{minor}", keras) for minor in range(16, 21) for keras in (OLDEST, NEWEST)),
    *(("2.21", keras) for keras in ("3.12", NEWEST)),
]

# Tests of the codec's library alone, and of programs for the newest Keras.
LEFT_OUT = ["tests/custom_ops", "tests/gpu/test_emulated.py", "tests/tutorials"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--only", nargs="+", metavar="TENSORFLOW[/KERAS]", help="pairs such as 2.16/3.10, or 2.16"
    )
    parser.add_argument("--full", action="store_true", help="run what `make test-all` runs")
    parser.add_argument("--processes", default="2", help="of pytest")
    options = parser.parse_args()
    only = options.only
    pairs = [p for p in PAIRS if not only or p[0] in only or "/".join(p) in only]
    if not pairs:
        parser.error(f"--only must name some of {['/'.join(pair) for pair in PAIRS]}")
    print("| TensorFlow | Keras | tests |\n|---|---|---|", flush=True)
    failed = False
    for tensorflow, keras in pairs:
        versions, outcome, passed = test(tensorflow, keras, options.full, options.processes)
        print(f"| {versions[0]} | {versions[1]} | {outcome} |", flush=True)
        failed |= not passed
    sys.exit(failed)


def test(tensorflow: str, keras: str, full: bool, processes: str) -> tuple[list[str], str, bool]:
    """Tests a pair; returns the versions, what pytest says at last, and whether all passed."""
    folder = FOLDER / f"{tensorflow}-{keras}"
    shutil.rmtree(folder, ignore_errors=True)
    sources = folder / "sources"
    copy_sources(sources)
    if OBJECTS.exists():  # the codec library's objects know no TensorFlow, and fit
        shutil.copytree(OBJECTS, sources / "build" / "ops")
    # test_wheel.py copies what git lists.
    subprocess.run(["git", "init", "--quiet"], cwd=sources, check=True)
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    log = FOLDER / f"{folder.name}.log"  # a version has dots
    with log.open("w") as output:

        def run(*command: str) -> int:
            return subprocess.call([python, *command], cwd=sources, stdout=output, stderr=output)

        pip = ("-m", "pip", "install", "--quiet")
        wanted = [f"tensorflow-cpu=={tensorflow}.*", f"keras=={keras}.*"]
        own = ("-e", ".[test,examples]")
        # By its dependencies it would bring a second TensorFlow beside tensorflow-cpu.
        keras2 = ("--no-deps", f"tf_keras=={tensorflow}.*")
        # Tests build with what is installed.
        if run(*pip, *wanted, "setuptools>=77") or run(*pip, *own) or run(*pip, *keras2):
            print(log.read_text()[-2_000:], file=sys.stderr, flush=True)
            return [tensorflow, keras], f"not installed: {log.relative_to(ROOT)}", False
        output.flush()
        names = "import tensorflow as tf, keras; print(tf.__version__, keras.__version__)"
        said = subprocess.run([python, "-c", names], capture_output=True, text=True, check=True)
        versions = said.stdout.split()[-2:]
        tests = [f"--ignore={path}" for path in LEFT_OUT]
        tests += ["-m", "not stock"] if full else []
        status = run("-m", "pytest", "-q", "-n", processes, "--dist", "worksteal", *tests)
    outcome = re.findall(r"^=*\s*(.*\b(?:passed|failed|error).*?)\s*=*$", log.read_text(), re.M)
    if status == 0:
        shutil.rmtree(folder)
    else:
        print(log.read_text()[-20_000:], file=sys.stderr, flush=True)
    # "909 passed, 33 warnings in 948.59s (0:15:48)"
    in_short = re.sub(r",? \d+ warnings?| in \d.*", "", outcome[-1]) if outcome else "no result"
    return versions, in_short, status == 0


def copy_sources(target: Path) -> None:
    """Copies what git knows or would take, so that nothing that was built comes along."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in names.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


if __name__ == "__main__":
    main()
