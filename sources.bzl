"""The native sources, as patterns for BUILD and setup.py.

This file is Starlark and Python at once: BUILD loads it, setup.py runs it.
"""

# The codec library, without TensorFlow. The first list is compiled.
LIB_SOURCES = ["custom_ops/lib/*/*.cc"]
LIB_HEADERS = [
    "custom_ops/lib/*/*.h",
    "custom_ops/lib/*/*.inc",
]

# The ops and their kernels.
OPS_SOURCES = [
    "custom_ops/kernels/*.cc",
    "custom_ops/ops/*.cc",
]
OPS_HEADERS = [
    "custom_ops/kernels/*.h",
    "custom_ops/ops/*.h",
]

# What only a build with nvcc compiles. The lists above have none of these.
CUDA_SOURCES = [
    "custom_ops/kernels/gpu_*.cc",
    "custom_ops/lib/cuda/*.cu",
]
CUDA_HEADERS = [
    "custom_ops/kernels/gpu_*.h",
    "custom_ops/lib/cuda/*.cuh",
    "custom_ops/lib/cuda/*.h",
]
