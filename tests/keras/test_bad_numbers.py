"""A gradient that is not finite on one replica: seen by all, kept by none."""

from typing import Any

import numpy as np

import tf_gc
from tests.cases import cases
from tests.keras.compressed import components
from tests.strategies.helpers import cpus, reducer, variables_of


# tests/steps, tests/reducers and tests/custom_ops ask all codecs.
@cases(
    "codec",
    tf_gc.Quantized(warm_up=False, bypass_size=0, plan="scatter_gather"),
    tf_gc.TwoBit(0.01, warm_up=False, bypass_size=0, plan="all_gather"),
    tf_gc.TwoBit(warm_up=False, bypass_size=10_000),
    tf_gc.NoCompression(),
    ids=str,
)
def test_every_replica_sees_it_in_that_element_once(codec: Any) -> None:
    replicas = 3
    strategy = tf_gc.CompressedMirroredStrategy(cpus(replicas), codec)
    run = reducer(strategy, variables_of(strategy, (900,)))
    clean = np.random.default_rng(1).normal(size=(replicas, 900)).astype(np.float32)
    for replica, element, bad in ((0, 3, np.nan), (1, 450, np.inf), (2, 899, -np.inf)):
        run([clean])
        before = [components(r)[replica] for r in strategy.compression_state.variables]
        gradients = clean.copy()
        gradients[replica, element] = bad
        for (total,) in run([gradients]):
            assert not np.isfinite(total[element])
            assert np.isfinite(np.delete(total, element)).all()
        for residual, old in zip(strategy.compression_state.variables, before, strict=True):
            assert components(residual)[replica][element] == old[element]
            assert all(np.isfinite(component).all() for component in components(residual))
        for (total,) in run([clean]):
            assert np.isfinite(total).all()
