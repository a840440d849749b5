"""Each promise of docs/guarantees.md is tested by `make test`."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = re.compile(r"(pytest\.mark\.)?(matrix|stock)")


def runs_by_default(path: Path) -> bool:
    """Whether a file has a test that neither its own mark nor the file's leaves out."""
    body = ast.parse(path.read_text()).body
    marks = [ast.unparse(node) for node in body if isinstance(node, ast.Assign)]
    if any(mark.startswith("pytestmark") and LEFT_OUT.search(mark) for mark in marks):
        return False
    tests = [n for n in body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    return any(
        not any(LEFT_OUT.fullmatch(ast.unparse(mark)) for mark in test.decorator_list)
        for test in tests
    )


def test_each_promise_has_a_test_that_runs_by_default() -> None:
    lines = (ROOT / "docs" / "guarantees.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| what is ")]
    assert rows
    for row in rows:
        names = re.findall(r"`(tests/[\w/.]+)`", row.rpartition(" | ")[2])
        paths = [ROOT / name for name in names]
        assert all(path.exists() for path in paths), row
        files = [f for path in paths for f in ([path] if path.is_file() else path.glob("test_*"))]
        assert any(map(runs_by_default, files)), row
