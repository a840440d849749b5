"""The CUDA kernels, built where there is nvcc and loaded without a GPU."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases import matrix

pytestmark = matrix  # It compiles the kernels.
ROOT = Path(__file__).resolve().parents[2]

# Loads a library and says which kernels its ops have: (op, device, dtypes of T, host memory).
KERNELS = """
import ctypes, json, sys
import tensorflow as tf
from tensorflow.python.framework import kernels
tf.load_op_library(sys.argv[1])
runtime, driver = ctypes.c_int(), ctypes.c_int()
ctypes.CDLL(sys.argv[1]).tf_gc_cuda_versions(ctypes.byref(runtime), ctypes.byref(driver))
ops = [
    (
        kernel.op,
        kernel.device_type,
        [tf.dtypes.as_dtype(n).name for c in kernel.constraint for n in c.allowed_values.list.type],
        list(kernel.host_memory_arg),
    )
    for kernel in kernels.get_all_registered_kernels().kernel
    if kernel.op.startswith("TfGc>")
]
print(json.dumps([ops, runtime.value]))
"""


def run(*command: str | Path, **environment: str) -> str:
    environment = {**os.environ, **environment}
    return subprocess.check_output(command, cwd=ROOT, env=environment, text=True)


@pytest.fixture(scope="module")
def library() -> Path:
    """The op library with CUDA kernels for a wheel, for the TensorFlow at hand."""
    search = [sys.executable, str(ROOT / "build_backend" / "tf_gc_cuda.py")]
    if subprocess.run(search, capture_output=True, check=False).returncode:
        pytest.skip("there is no nvcc to build the CUDA kernels with")
    # `make cuda-report` has done that: nothing is compiled again.
    build = ROOT / "build" / "cuda"
    arguments = ["setup.py", "--quiet", "build_ext", "--build-lib", build]
    run(sys.executable, *arguments, TF_GC_CUDA="1", TF_GC_PORTABLE="1")
    return build / "tf_gc" / "ops" / "_tf_gc_ops.so"


def test_every_op_of_the_codecs_has_a_gpu_kernel_with_messages_in_device_memory(
    library: Path,
) -> None:
    kernels, runtime = json.loads(run(sys.executable, "-c", KERNELS, library).splitlines()[-1])
    assert runtime >= 11080
    of: dict[str, set[tuple[Any, ...]]] = {"CPU": set(), "GPU": set()}
    for op, device, dtypes, in_host_memory in kernels:
        of[device].add((op, tuple(dtypes)))
        # Handles are in host memory, and deadlines; messages, gradients and sums are not.
        expected = {"residuals"} if op.endswith(("Encode", "Reencode", "EncodeRows")) else set()
        if device == "GPU" and "Deadline" in op:
            expected = {"tokens", "deadline"}
        assert {*in_host_memory} == expected
    assert len(of["CPU"]) == 36  # 9 ops of 3 dtypes and nine without
    # Packing, noting and counting is done on the host; factors have TensorFlow's ops on GPUs.
    on_host = ("CountSent", "Keep", "NoteStep", "Pack", "TrialTimes", "Unpack")
    dtypes = ("float32", "float16", "bfloat16")
    of_dtypes = ("ProjectFactors", "EncodeFactors", "DecodeFactors")
    typed = {(f"TfGc>{op}", (d,)) for op in of_dtypes for d in dtypes}
    assert of["CPU"] - of["GPU"] == {(f"TfGc>{op}", ()) for op in on_host} | typed
    assert of["GPU"] < of["CPU"]

    # TensorFlow has a CUDA runtime of its own: the two must not take each other for themselves.
    symbols = run("nm", "-D", library).split()
    assert "tf_gc_wire_version" in symbols
    assert not [name for name in symbols if name.startswith(("cuda", "cu", "__cuda"))]
    assert "cuda" not in run("readelf", "-d", library).lower()


def test_the_cuda_runtime_asks_for_no_newer_c_library_than_the_wheel_says(library: Path) -> None:
    needed = {
        tuple(map(int, version.split(".")))
        for version in re.findall(r"GLIBC_([\d.]+)", run("objdump", "-T", library))
    }
    assert (2, 2, 5) in needed
    assert max(needed) <= (2, 28), "see build_backend/portable.cc"
