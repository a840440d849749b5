"""A native library that does not fit TensorFlow gives one readable ImportError.

Each test makes a real misfit in a copy of the package, and imports that copy.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tests import programs
from tf_gc.ops import _loader

PACKAGE = _loader.library_path().parents[1]
MISSING_SYMBOL = "tf_gc_symbol_of_another_tensorflow"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the installed package, native library included."""
    return shutil.copytree(PACKAGE, tmp_path / "site" / "tf_gc")


def import_copy(package: Path, status: int = 0, *paths: Path) -> str:
    """The output of a program next to the copied package that imports it."""
    program = package.parent / "program.py"
    after = f"import sys\nsys.path += {[*map(str, paths)]}\n"
    program.write_text(f"{after}import tf_gc\nprint(tf_gc.__file__)\n")
    return programs.output_of(program, status=status)


def import_error(package: Path) -> str:
    """The message of the ImportError that importing the copied package raises."""
    output = import_copy(package, status=1)
    before, found, message = output.rpartition("\nImportError: ")
    assert found, output
    assert "During handling" not in before
    assert "direct cause" not in before
    return message


def doctor_versions(package: Path, *libraries: tuple[str, str]) -> None:
    """Makes the copy claim that it has these libraries, each of a version of TensorFlow."""
    info = package / "ops" / "_build_info.py"
    text, count = re.subn(
        r"(?m)^LIBRARIES = .*", f"LIBRARIES = {dict(libraries)!r}", info.read_text()
    )
    assert count == 1
    info.unlink()  # it may be a link to the original
    info.write_text(text)


def test_a_source_folder_that_hides_what_is_installed(package: Path, tmp_path: Path) -> None:
    (package / "ops" / _loader.library_path().name).unlink()
    installed = shutil.copytree(PACKAGE, tmp_path / "installed" / "tf_gc")
    output = import_copy(package, 1, installed.parent)
    assert f"The folder {package.parent} hides the tf_gc that is installed" in output
    assert "run the program from another folder" in output


def test_built_for_another_minor_version(package: Path) -> None:
    library = package / "ops" / "_tf_gc_ops.so"
    doctor_versions(package, ("2.3.4", library.name))
    message = import_error(package)
    assert f"built for TensorFlow 2.3.4, found TensorFlow {tf.__version__}" in message
    assert f"{sys.executable} -m pip install --force-reinstall --no-deps" in message

    doctor_versions(package, ("2.3.4", "_tf_gc_ops_2_3.so"), ("2.4.0", "_tf_gc_ops_2_4.so"))
    message = import_error(package)
    assert f"built for TensorFlow 2.3.4, 2.4.0, found TensorFlow {tf.__version__}" in message
    assert "Install TensorFlow 2.3 or 2.4, or build tf_gc from its sources" in message

    mine = library.rename(library.with_name("_tf_gc_ops_of_this.so"))
    library.write_bytes(b"not a shared library")
    doctor_versions(package, ("2.3.4", library.name), (tf.__version__, mine.name))
    assert import_copy(package).splitlines()[-1] == str(package / "__init__.py")


def test_without_tensorflow(package: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import sys\nsys.path.append({str(package.parent)!r})\nimport tf_gc\n")
    done = subprocess.run(
        [sys.executable, "-S", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ImportError: tf_gc needs TensorFlow, and there is none" in done.stderr


@pytest.mark.parametrize(
    ("built_for", "found", "fits"),
    [
        ("2.21.0", "2.21.1", True),
        ("2.21.0", "2.22.0", False),
        ("2.21.0+nv25.9", "2.21.0", True),
        ("2.22.0-rc0", "2.22.0", False),  # release candidates and nightlies promise nothing
        ("2.22.0-dev20260101", "2.22.0-dev20260102", False),
        ("2.22.0-dev20260101", "2.22.0-dev20260101", True),
    ],
)
def test_which_versions_fit(built_for: str, found: str, fits: bool) -> None:
    assert (_loader._abi(built_for) == _loader._abi(found)) is fits


def test_undefined_symbol(package: Path, tmp_path: Path) -> None:
    source = tmp_path / "stale.cc"
    source.write_text(
        f'extern "C" void {MISSING_SYMBOL}();\n'
        f'extern "C" void tf_gc_entry() {{ {MISSING_SYMBOL}(); }}\n'
    )
    library = package / "ops" / _loader.library_path().name
    library.unlink()
    subprocess.run(["g++", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    message = import_error(package)
    version = f"TensorFlow {tf.__version__}"
    for part in (f"built for {version}", f"found {version}", " -m pip install ", MISSING_SYMBOL):
        assert part in message


@pytest.mark.parametrize("missing", ["_tf_gc_ops.so", "_build_info.py"])
def test_not_built(package: Path, missing: str) -> None:
    (package / "ops" / missing).unlink()
    message = import_error(package)
    for part in ("not built", f"TensorFlow {tf.__version__}", " -m pip install "):
        assert part in message


def test_a_clone_builds_its_own_ops(package: Path) -> None:
    for source in ("FOLDER_OF_THE_SOURCES", f"-e {package.parent}"):
        (package / "ops" / _loader.library_path().name).unlink(missing_ok=True)
        assert import_error(package).endswith(f" --no-deps {source}\n")
        (package.parent / "setup.py").touch()
