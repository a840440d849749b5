"""The README and the Makefile show programs that work as they stand there."""

import re
from pathlib import Path

import pytest

from tests import wheels
from tests.cases import matrix
from tests.programs import ROOT, output_of


def test_the_first_snippet_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")  # one GPU has nothing to communicate
    path = tmp_path / "snippet.py"
    seeded = "import keras; keras.utils.set_random_seed(1)\n"  # it decides when the warm-up ends
    end = "print(strategy.report().compressed_steps, 'compressed')\n"
    path.write_text(seeded + wheels.snippet() + end)
    output = output_of(path)
    assert "loss" in output
    assert "a replica sends 16,904 bytes a step instead of 153,640" in output
    assert re.search(r"^[1-9]\d* compressed$", output, re.M), output


@matrix
def test_the_demo_ends_with_a_table() -> None:
    arguments = ["--seeds=2", "--epochs=2", "--batch-size=128"]
    output = output_of(ROOT / "examples" / "digits.py", *arguments, new=True)
    table = {line.split()[0]: line.split()[1:] for line in output.splitlines()[-2:]}
    stock, compressed = table["MirroredStrategy"], table["CompressedMirroredStrategy"]
    for mean, plus_minus, spread, *_ in stock, compressed:
        assert 0 < float(mean) <= 1
        assert plus_minus == "±"
        assert 0 <= float(spread) < 1
    assert int(compressed[3].replace(",", "")) * 8 < int(stock[3].replace(",", ""))


def test_the_demo_takes_a_threshold() -> None:
    arguments = ["--seeds=1", "--epochs=2", "--batch-size=512", "--threshold=0.01"]
    output = output_of(ROOT / "examples" / "digits.py", *arguments)
    stock, compressed = (int(line.split()[4].replace(",", "")) for line in output.splitlines()[-2:])
    assert stock > 12 * compressed  # two bits an element of every tensor
