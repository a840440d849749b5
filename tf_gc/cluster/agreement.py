"""Before the first step, workers check that all of them compress in the same way."""

from collections.abc import Mapping
from typing import Any

from tf_gc.cluster.workers import Workers
from tf_gc.ops.library import compact_version, wire_version
from tf_gc.params import CompressionParams


def check_agreement(
    params: CompressionParams, arguments: Mapping[str, Any], workers: Workers
) -> None:
    """Checks that all workers will send the same kinds of messages and run the same collectives.

    Args:
      params: what this worker compresses, and how.
      arguments: what else has to be the same on all workers, by the names that users know.
      workers: the workers of the job, all of which call this.

    Raises:
      ValueError: on every worker, if any worker differs from the others.
    """
    others = ", ".join(f"{name}={value}" for name, value in arguments.items())
    wire = f"wire version {wire_version()}, compact {compact_version()}"
    workers.meet(
        f"{wire}, {others}, {params!r}",  # what may be cut comes last
        error="the workers of this job compress gradients in different ways; give all of them the "
        "same arguments of the strategy and the same version of tf_gc",
    )
