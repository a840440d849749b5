"""What the README and the Makefile show works as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments: str, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_first_snippet_runs(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"```python\n(import keras\n.*?)```", _readme(), re.DOTALL)
    (tmp_path / "snippet.py").write_text(snippet)
    assert "loss" in run("snippet.py", cwd=tmp_path)


def test_every_public_name_is_documented() -> None:
    import tf_gc

    for name in tf_gc.__all__:
        assert getattr(tf_gc, name).__doc__


@pytest.mark.parametrize("threshold", ["auto", "0.01"])
def test_the_demo_ends_with_a_table(threshold: str) -> None:
    output = run(
        *(str(ROOT / "examples" / "digits.py"), "--seeds=2", "--epochs=2"),
        f"--threshold={threshold}",
        cwd=ROOT,
    )
    table = {line.split()[0]: line.split()[1:] for line in output.splitlines()[-2:]}
    stock, compressed = table["MirroredStrategy"], table["CompressedMirroredStrategy"]
    for mean, plus_minus, spread, *_ in stock, compressed:
        assert 0 < float(mean) <= 1
        assert plus_minus == "±"
        assert 0 <= float(spread) < 1
    assert int(compressed[3].replace(",", "")) * 10 < int(stock[3].replace(",", ""))


def _readme() -> str:
    return (ROOT / "README.md").read_text()
