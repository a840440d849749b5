"""What workers do in the tests of low rank."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import tensorflow as tf

import tf_gc

SHAPES = [(128, 192), (3, 3, 32, 160), (400, 140), (7,)]


def ledger(eager: bool) -> dict[str, Any]:
    """Reduces random gradients; returns what was given, what was sent and what is left."""
    params = tf_gc.LowRank(2, warm_up=False)
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape)) for shape in SHAPES]

    def step(gradients: list[tf.Tensor]) -> Any:
        def replica_step() -> list[tf.Tensor]:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            mine = [gradient[replica] for gradient in gradients]
            return tf_gc.all_reduce_gradients(list(zip(mine, variables, strict=True)))

        return strategy.run(replica_step)

    run = step if eager else tf.function(step, autograph=False)
    random = np.random.default_rng(1)  # the same on all workers
    given = [np.zeros(shape) for shape in SHAPES]
    sent = [np.zeros(shape) for shape in SHAPES]
    digest = hashlib.sha256()
    for _ in range(5):
        gradients = [
            random.normal(size=(strategy.num_replicas_in_sync, *shape)).astype("f")
            for shape in SHAPES
        ]
        for i, total in enumerate(run([tf.constant(gradient) for gradient in gradients])):
            first, *others = strategy.experimental_local_results(total)
            for other in others:
                assert other.numpy().tobytes() == first.numpy().tobytes()
            digest.update(first.numpy().tobytes())
            given[i] += gradients[i].sum(0, np.float64)
            sent[i] += first.numpy()
    return {
        "given": given,
        "sent": sent,
        "left": [strategy.compression_state.total(variable) for variable in variables],
        "digest": digest.hexdigest(),
        "bytes": strategy.traffic.sent_bytes,
    }
