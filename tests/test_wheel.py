"""The wheel for several TensorFlows: what is in it, and that it works where it is installed."""

import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import tensorflow as tf

from tests import programs, versions
from tests.cases import matrix
from tests.programs import ROOT


def make_sources(folder: Path) -> Path:
    """Makes an sdist, and returns the folder with what is in it."""
    clone = folder / "clone"  # a build writes beside its sources
    versions.copy_sources(clone)
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder]
    subprocess.run(build, cwd=clone, stdout=subprocess.DEVNULL, check=True)
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder)
    return folder / archive.name.removesuffix(".tar.gz")


def make_wheel(folder: Path, sources: Path) -> Path:
    """Makes the wheel of build_backend/wheels.py, for this environment's TensorFlow alone."""
    library = sources / "build" / "wheels" / "libraries" / "mine"
    build = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", library]
    environment = {**os.environ, "TF_GC_PORTABLE": "1", "LDFLAGS": "-s"}
    # In our own folder: what needs no new compilation is taken from it.
    subprocess.run(build, cwd=ROOT, env=environment, check=True)
    pack = [sys.executable, "build_backend/wheels.py", "--pack"]
    subprocess.run(pack, cwd=sources, check=True)
    (wheel,) = (sources / "dist").glob("*.whl")
    return wheel


def files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


@matrix
def test_a_wheel_has_libraries_and_works_without_a_compiler(tmp_path: Path) -> None:
    sources = make_sources(tmp_path)
    beside = {path.name for path in sources.iterdir()} - {"PKG-INFO", "setup.cfg", "tf_gc.egg-info"}
    assert beside == {
        *("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md"),
        *("build_backend", "custom_ops", "pyproject.toml", "setup.py", "sources.bzl", "tf_gc"),
    }
    for folder in ("build_backend", "custom_ops", "tf_gc"):
        assert files(sources / folder) == files(tmp_path / "clone" / folder)

    wheel = make_wheel(tmp_path, sources)
    assert wheel.name.startswith("tf_gc-0.1.0-py3-none-manylinux_2_28_")
    minor = "_".join(tf.__version__.split(".")[:2])
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read("tf_gc-0.1.0.dist-info/METADATA").decode()
    libraries = {name for name in names if name.endswith(".so")}
    assert libraries == {f"tf_gc/ops/_tf_gc_ops_{minor}.so"}
    assert "tf_gc/py.typed" in names
    # TensorFlow is an extra: one of its distributions is there, or the user chooses one.
    required = Parser().parsestr(metadata).get_all("Requires-Dist") or []
    assert [name for name in required if "tensorflow" in name and "extra ==" not in name] == []
    for extra in ("tensorflow", "tensorflow-cpu", "and-cuda"):
        assert any(f'extra == "{extra}"' in name for name in required)

    site = tmp_path / "site"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel]
    subprocess.run([sys.executable, *install], check=True)
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys\nsys.path.insert(0, {str(site)!r})\nimport tensorflow as tf, tf_gc\n"
        "from tf_gc.ops import encode\nfrom tf_gc.ops.library import cuda_versions\n"
        "cuda_versions()\n"
        "message = encode([tf.ones(300)], [tf.Variable(tf.zeros(300))])\n"
        "print(message.shape, tf_gc.__version__, tf_gc.__file__)\n"
    )
    output = programs.output_of(program)
    assert output.splitlines()[-1] == f"(1, 16) 0.1.0 {site / 'tf_gc' / '__init__.py'}"


def test_the_versions_of_the_wheel_are_those_that_are_tested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "build_backend")
    minors = runpy.run_path(str(ROOT / "build_backend" / "wheels.py"))["MINORS"]
    assert minors == list(dict.fromkeys(tensorflow for tensorflow, _ in versions.PAIRS))
