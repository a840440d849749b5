"""Builds what a release consists of, and publishes nothing.

The tag, the package, CITATION.cff and a section of CHANGELOG.md have to name the same version. Then
`dist` gets the sdist and the wheel of build_backend/wheels.py, and twine checks both.

    python build_backend/release.py v0.1.0
    python build_backend/release.py v0.1.0 --only 2.21
"""

from __future__ import annotations

import re
import shutil
import sys

from wheels import DIST, ROOT, TOOLS, environment, run

# Where a version is written down, as a line of the file.
VERSIONS = {
    "tf_gc/__init__.py": r'__version__ = "(.+)"',
    "CITATION.cff": r"version: (.+)",
    "CHANGELOG.md": r"## (\d\S*)",  # the newest comes first
}


def disagreements(tag: str) -> list[str]:
    """Returns which files name another version than a tag such as v0.1.0, and which one."""
    found = {
        name: re.search(f"^{pattern}", (ROOT / name).read_text(), re.M)
        for name, pattern in VERSIONS.items()
    }
    versions = {name: match[1] if match else "no version" for name, match in found.items()}
    return [f"{name}: {version}" for name, version in versions.items() if f"v{version}" != tag]


def main(tag: str, *arguments: str) -> None:
    """Checks the version and builds; the arguments are those of build_backend/wheels.py."""
    if wrong := disagreements(tag):
        sys.exit(f"the tag must be v and the version, got {tag!r}; {', '.join(wrong)}")
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "build_backend/wheels.py", *arguments)
    python = environment("tools", *TOOLS)
    run(python, "-m", "build", "--sdist", "--no-isolation", "--outdir", DIST)
    run(python, "-m", "twine", "check", "--strict", *sorted(DIST.iterdir()))


if __name__ == "__main__":
    main(*sys.argv[1:])
