"""Compression under parameter servers: workers push gradients and pull variables."""

from tf_gc.parameter_server.server import run_server
from tf_gc.parameter_server.strategy import CompressedParameterServerStrategy, push_gradients

__all__ = ["CompressedParameterServerStrategy", "push_gradients", "run_server"]
