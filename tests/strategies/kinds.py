"""An example of each kind of params, and what has to come of it under every strategy."""

from typing import Any

import numpy as np

from tests.strategies.helpers import check_that_nothing_is_lost, reducer, variables_of

AT_ONCE = {"warm_up": False}
SHAPE = (256, 256)  # the smallest square that is sent as factors
# By the type in a dict: arguments with which the first step is compressed, if any is.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "none": {},
    "1bit": {"residual": "bfloat16", **AT_ONCE},
    "2bit": {"threshold": 0.5},
    "quantized": {"bits": 4, "residual": "int8", **AT_ONCE},
    "low_rank": AT_ONCE,
    "bfloat16": {},
    "float16": {"bypass_size": 0},
    "by_variable": {"rules": {"other": {"type": "2bit"}}, "default": {"type": "bfloat16"}},
    "auto": {"params": {"type": "quantized", "residual": "int8", **AT_ONCE}},
}
# Which kinds parameter servers refuse, and how the error begins.
REFUSED_BY_SERVERS = {
    "auto": "compression_params must not be tf_gc.Auto under parameter servers",
    "low_rank": "tf_gc.LowRank is for sums over replicas",
}
EXAMPLES = {name: {"type": name, **arguments} for name, arguments in ARGUMENTS.items()}
# Without a residual.
EXAMPLES["8 bits"] = {"type": "quantized", "bits": 8}


def check_sums(strategy: Any) -> None:
    """Six steps of a synchronous strategy lose next to nothing, and are compressed if any are."""
    variables = variables_of(strategy, matrix=SHAPE)
    random = np.random.default_rng(1)
    size = (6, 1, strategy.num_replicas_in_sync, *SHAPE)
    steps = random.normal(size=size).astype("f")
    run = reducer(strategy, variables)
    check_that_nothing_is_lost(strategy, variables, run, steps, rtol=0, atol=0.2)
    assert bool(strategy.schedule and strategy.schedule.buckets) == bool(
        strategy.compression_params.specs()
    )
