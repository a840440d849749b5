"""Whether the CUDA kernels are built and with what, with stand-ins for nvcc."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "build_backend"))

import tf_gc_cuda as cuda

MakeNvcc = Callable[..., Path]

NVCC = """#!/bin/sh
case "$1" in
--version) echo 'Cuda compilation tools, release 12.4, V12.4.131' ;;
--list-gpu-code) printf '%s\\n' {architectures} ;;
--dryrun)
  echo '#$ INCLUDES="-I{root}/include"  ' >&2
  echo '#$ LIBRARIES=  "-L{root}/lib/stubs" "-L{root}/lib"' >&2 ;;
esac
"""

PTXAS = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN5tf_gc3gpu4LaneIfEEvi' for 'sm_75'
ptxas info    : Function properties for _ZN5tf_gc3gpu4LaneIfEEvi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 400 bytes cmem[0]
ptxas info    : Compiling entry function '_ZN5tf_gc3gpu4LaneIfEEvi' for 'sm_90'
ptxas info    : Function properties for _ZN5tf_gc3gpu4LaneIfEEvi
    16 bytes stack frame, 24 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 512 bytes smem, 400 bytes cmem[0]
x.cu(3): warning #177-D: variable "a" was declared but never referenced
"""


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TF_GC_CUDA", "CUDA_HOME", "NVCCFLAGS", "CXX"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.fixture
def make_nvcc(tmp_path: Path) -> MakeNvcc:
    """Makes a toolkit with a stand-in for nvcc, and returns nvcc."""

    def make(folder: str, architectures: str = "sm_70 sm_75 sm_80 sm_90 sm_90a sm_100") -> Path:
        root = tmp_path / folder
        (root / "bin").mkdir(parents=True)
        (root / "lib").mkdir()
        (root / "lib" / "libcudart_static.a").touch()
        nvcc = root / "bin" / "nvcc"
        nvcc.write_text(NVCC.format(root=root, architectures=architectures))
        nvcc.chmod(0o755)
        return nvcc

    return make


def test_nvcc_is_that_of_cuda_home_then_of_the_path_then_of_a_wheel(
    make_nvcc: MakeNvcc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert cuda.find_nvcc([]) in (None, "/usr/local/cuda/bin/nvcc")
    of_wheel = make_nvcc("nvidia/cu13")
    wheels = [str(tmp_path / "nvidia")]
    assert cuda.find_nvcc(wheels) == str(of_wheel)
    on_path = make_nvcc("toolkit")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert cuda.find_nvcc(wheels) == str(on_path)
    of_home = make_nvcc("home")
    monkeypatch.setenv("CUDA_HOME", str(of_home.parents[1]))
    assert cuda.find_nvcc(wheels) == str(of_home)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "empty"))  # not silently another one
    assert cuda.find_nvcc(wheels) is None


@pytest.mark.parametrize(
    ("choice", "tensorflow_has_cuda", "built"),
    [("", True, True), ("", False, False), ("1", False, True), ("0", True, False)],
)
def test_by_default_the_kernels_are_built_where_tensorflow_has_cuda(
    make_nvcc: MakeNvcc,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    choice: str,
    tensorflow_has_cuda: bool,
    built: bool,
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(make_nvcc("toolkit").parents[1]))
    monkeypatch.setenv("TF_GC_CUDA", choice)
    assert (cuda.toolkit(tensorflow_has_cuda, []) is not None) == built
    said = "building CUDA kernels with" if built else "building for the CPU only"
    assert said in capfd.readouterr().out


def test_without_nvcc_the_package_is_built_for_the_cpu_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert cuda.toolkit(True, []) is None
    assert "for the CPU only: nvcc was not found. Set CUDA_HOME" in capfd.readouterr().out
    monkeypatch.setenv("TF_GC_CUDA", "1")
    with pytest.raises(cuda.CudaError, match="nvcc was not found"):
        cuda.toolkit(True, [])
    monkeypatch.setenv("TF_GC_CUDA", "yes")
    with pytest.raises(cuda.CudaError, match="'yes'"):
        cuda.toolkit(True, [])


@pytest.mark.parametrize(
    ("known", "targets", "ptx"),
    [
        ("sm_60 sm_70 sm_75 sm_80 sm_86 sm_89 sm_90 sm_90a", [70, 80, 90], 90),
        ("sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", [75, 80, 90], 90),
        ("sm_60 sm_70 sm_75 sm_80", [70, 80], 80),
    ],
)
def test_code_for_each_generation_and_ptx_for_newer_ones(
    make_nvcc: MakeNvcc, known: str, targets: list[int], ptx: int
) -> None:
    nvcc = make_nvcc("toolkit", known)
    found = cuda.inspect(str(nvcc))
    assert found.version == "12.4"
    assert list(found.architectures) == targets
    codes = [flag.partition("code=")[2] for flag in found.compile_flags() if "code=" in flag]
    assert codes == [*(f"sm_{target}" for target in targets), f"compute_{ptx}"]
    root = nvcc.parents[1]
    assert found.includes == (f"{root}/include",)
    assert f"-L{root}/lib" in found.link_flags()


def test_a_toolkit_without_its_parts_is_an_error(make_nvcc: MakeNvcc) -> None:
    with pytest.raises(cuda.CudaError, match=r"CUDA 11\.8 or newer"):
        cuda.inspect(str(make_nvcc("old", "sm_35 sm_50")))
    nvcc = make_nvcc("partial")
    (nvcc.parents[1] / "lib" / "libcudart_static.a").unlink()
    with pytest.raises(cuda.CudaError, match="libcudart_static"):
        cuda.inspect(str(nvcc))


def test_flags_of_the_environment_come_last(
    make_nvcc: MakeNvcc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCCFLAGS", "-Werror all-warnings")
    monkeypatch.setenv("CXX", "ccache g++-12")
    flags = cuda.inspect(str(make_nvcc("toolkit"))).compile_flags()
    assert flags[-4:] == ["-ccbin", "g++-12", "-Werror", "all-warnings"]


def test_the_report_names_registers_spills_and_shared_memory(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name = "_ZN5tf_gc3gpu4LaneIfEEvi"
    assert cuda.kernels(PTXAS) == [(name, "sm_75", 40, 0, 0), (name, "sm_90", 64, 36, 512)]
    assert cuda.warnings(PTXAS) == PTXAS.splitlines(keepends=True)[-1]
    log = tmp_path / "log"
    log.write_text(PTXAS)
    assert cuda.main([str(log)]) == 1  # spills
    table = capfd.readouterr().out
    assert table.splitlines()[1].split() == ["40", "64", "36", "512", name]
    log.write_text("".join(PTXAS.splitlines(keepends=True)[:5]))
    assert cuda.main([str(log)]) == 0
    log.write_text("")
    assert cuda.main([str(log)]) == 1  # nothing was compiled
