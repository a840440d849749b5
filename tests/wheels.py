"""Installs the wheel with each Python and each TensorFlow, and runs the README's program.

`make wheels` has to have built the wheel of all TensorFlows in `dist`. Each pair gets a new
environment, and nothing but that environment is on the PATH: no compiler.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import versions  # noqa: E402

PYTHONS = [f"python3.{minor}" for minor in range(10, 14)]
MINORS = list(dict.fromkeys(tensorflow for tensorflow, _ in versions.PAIRS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=MINORS, default=MINORS, metavar="TENSORFLOW")
    options = parser.parse_args()
    wheels = [*(ROOT / "dist").glob("*_x86_64.whl")]
    if len(wheels) != 1:
        parser.error(f"dist must have one wheel, made by `make wheels`; found {len(wheels)}")
    print(f"| Python | {' | '.join(options.only)} |\n|---|{'---|' * len(options.only)}", flush=True)
    failed = False
    for python in PYTHONS:
        outcomes = [outcome(wheels[0], python, minor) for minor in options.only]
        print(f"| {python.removeprefix('python')} | {' | '.join(outcomes)} |", flush=True)
        failed |= any(outcome.startswith("failed") for outcome in outcomes)
    sys.exit(failed)


def outcome(wheel: Path, python: str, minor: str) -> str:
    """Returns the release of TensorFlow with which the program runs, or what fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        path = folder / "venv" / "bin"

        def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [path / "python", *command],
                cwd=folder,
                env={"PATH": str(path), "HOME": str(Path.home()), "TF_CPP_MIN_LOG_LEVEL": "2"},
                capture_output=True,
                text=True,
            )

        pip = ("-m", "pip", "install", "--quiet", "--no-compile", "--only-binary=:all:")
        installed = run(*pip, f"{wheel}[tensorflow-cpu]", f"tensorflow-cpu=={minor}.*")
        if "No matching distribution found for tensorflow-cpu" in installed.stderr:
            return "does not exist"
        program = folder / "program.py"
        program.write_text(snippet())
        trained = installed if installed.returncode else run(program)
        if trained.returncode or "loss" not in installed.stdout + trained.stdout:
            log = Path(tempfile.gettempdir()) / f"wheel-{python}-{minor}.log"
            log.write_text(installed.stderr + trained.stdout + trained.stderr)
            return f"failed: {log}"
        shown = run("-m", "pip", "list", "--format=freeze").stdout
        return "".join(re.findall(r"^tensorflow.cpu==(.*)$", shown, re.M))


def snippet() -> str:
    """Returns the README's program."""
    readme = (ROOT / "README.md").read_text()
    return readme.split("```python\n", 1)[1].split("```")[0]


if __name__ == "__main__":
    main()
