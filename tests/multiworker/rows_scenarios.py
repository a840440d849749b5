"""What workers do in the tests of sparse gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import tensorflow as tf

import tf_gc

# Two tables; the first has rows of two parts.
SHAPES = [(500, 200), (300, 16)]


def random_rows(seed: int, shape: tuple[int, ...], replicas: int) -> tuple[np.ndarray, ...]:
    """Returns values, indices and where those of each replica begin; some replicas have none."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 60, replicas) * (rng.random(replicas) < 0.8)
    values = rng.normal(size=(counts.sum(), *shape[1:])).astype("f")
    indices = rng.zipf(1.3, counts.sum()) % shape[0]
    return values, indices.astype(np.int32), np.cumsum([0, *counts]).astype(np.int32)


def rows_ledger(all_params: list[Any], steps: int) -> list[dict[str, Any]]:
    """Reduces random rows, and returns what was given, what was sent and what is left."""
    return [_rows_ledger(params, steps) for params in all_params]


def _rows_ledger(params: Any, steps: int) -> dict[str, Any]:
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    with strategy.scope():
        tables = [tf.Variable(tf.zeros(shape)) for shape in SHAPES]

    @tf.function(autograph=False, reduce_retracing=True)
    def step(of_tables: list[Any]) -> Any:
        def replica_step() -> list[Any]:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            pairs = []
            for (values, indices, starts), table in zip(of_tables, tables, strict=True):
                mine = slice(starts[replica], starts[replica + 1])
                pairs.append((tf.IndexedSlices(values[mine], indices[mine]), table))
            sums = tf_gc.all_reduce_gradients(pairs)
            return [(total.values, total.indices) for total in sums]

        return strategy.run(replica_step)

    replicas = strategy.num_replicas_in_sync
    given = [np.zeros(shape) for shape in SHAPES]
    sent = [np.zeros(shape) for shape in SHAPES]
    largest = [np.zeros(shape[0]) for shape in SHAPES]  # of each row, the sum over all messages
    bits, sizes = [], []
    for number in range(steps):
        of_tables = [random_rows(number, shape, replicas) for shape in SHAPES]
        results = step([tuple(map(tf.constant, each)) for each in of_tables])
        for table, (values, indices) in enumerate(results):
            local = [strategy.experimental_local_results(part) for part in (values, indices)]
            (first, *others), (index, *other_indices) = local
            for mine, theirs in zip(others, other_indices, strict=True):
                np.testing.assert_array_equal(mine, first)
                np.testing.assert_array_equal(theirs, index)
            assert (np.diff(index.numpy()) > 0).all()
            assert index.dtype == tf.int32
            sent[table][index.numpy()] += first.numpy()
            given_values, given_indices, starts = of_tables[table]
            for start, end in itertools.pairwise(starts):
                mine = np.zeros(SHAPES[table])
                np.add.at(mine, given_indices[start:end], given_values[start:end])
                given[table] += mine
                largest[table] += np.abs(mine).max(axis=1)
            bits.append(first.numpy().tobytes())
        assert strategy.traffic is not None
        sizes.append((strategy.traffic.sent_bytes, strategy.traffic.stock_bytes))
    left = [strategy.compression_state.total(table) for table in tables]
    return {
        "given": given,
        "largest": largest,
        "sent": sent,
        "left": [
            np.zeros(s) if total is None else total for s, total in zip(SHAPES, left, strict=True)
        ],
        "bits": bits,
        "sizes": sizes,
        "schedule": str(strategy.schedule),
    }
