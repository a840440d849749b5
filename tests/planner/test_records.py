"""The predictions of what benchmarks/network.py has recorded."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cases import matrix

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, statistics
import planner

recorded = json.loads((planner.report.RESULTS / "planner.json").read_text())
predictor = planner.Predictor(recorded["measured"])
errors = [
    abs(predictor(cell, planner.OURS).seconds / cell.measured - 1)
    for cell in planner.recorded_cells()
]
print(len(errors), statistics.median(errors))
"""


@matrix
def test_most_recorded_steps_are_predicted_within_a_fifth() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT / "benchmarks",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    count, median = done.stdout.split()
    assert int(count) > 100
    assert float(median) < 0.2
