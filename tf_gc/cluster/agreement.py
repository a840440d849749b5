"""Before the first step, workers check that all of them compress in the same way."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_gc.cluster.workers import Workers
from tf_gc.ops.library import compact_version, wire_version
from tf_gc.params import CompressionParams

# Bytes of a description on the wire; a longer one is cut. Before it comes a digest of the whole.
_SIZE = 2048
_DIGEST = 32


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
    description = f"{wire}, {others}, {params!r}"  # what may be cut comes last
    whole = description.encode()
    mine = hashlib.sha256(whole).digest() + whole[:_SIZE].ljust(_SIZE)
    rows = [row.tobytes() for row in workers.gather(np.frombuffer(mine, np.int64))]
    if len(set(rows)) == 1:
        return
    descriptions = [row[_DIGEST:].decode(errors="replace").strip() for row in rows]
    listing = "\n".join(f"  worker {i}: {text}" for i, text in enumerate(descriptions))
    raise ValueError(
        "the workers of this job compress gradients in different ways; give all of them the same "
        f"arguments of the strategy and the same version of tf_gc:\n{listing}"
    )
