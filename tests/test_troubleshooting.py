"""Each message that docs/troubleshooting.md quotes is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OTHERS = {"Shape mismatch in the collective instance", "UnavailableError", "gamma"}


def test_quoted_messages_are_there() -> None:
    sources = [path.read_text() for path in (ROOT / "tf_gc").rglob("*.py")]
    nodes = [node for text in sources for node in ast.walk(ast.parse(text))]
    said = [node.value for node in nodes if isinstance(node, ast.Constant)]
    kernels = (ROOT / "custom_ops" / "kernels").glob("*.cc")
    said += [re.sub(r'"\s*"', "", path.read_text()) for path in kernels]
    everything = "\n".join(map(str, said))
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    quotes = {q for cell in re.findall(r"^\| (.*?) \| ", page, re.M) for q in cell.split("`")[1::2]}
    assert len(quotes) > 20
    for quote in quotes - OTHERS:
        assert all(part.strip() in everything for part in quote.split("…")), quote
