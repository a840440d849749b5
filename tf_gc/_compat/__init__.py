"""The private parts of TensorFlow that tf_gc needs, and how it takes them from a library.

No other module of tf_gc imports `tensorflow.python` or uses private attributes that
`_compat.attributes` does not list. `tf_gc.keras.keras3.private` is the same for Keras.
"""

from tf_gc._compat.attributes import require_attributes
from tf_gc._compat.branches import cond
from tf_gc._compat.functions import (
    at_each_call,
    clone_function,
    computed_from,
    exchange,
    graphs_from,
    in_caching_scope,
    is_function_to_trace,
    is_loop,
    is_member,
    is_part_of_outer,
    is_vectorized,
    loop_counter,
    record_read,
    replace_call_time_value,
    replace_uses,
    written_handles,
)
from tf_gc._compat.parameter_server import (
    CachingVariable,
    ParameterServerExtended,
    handle_at_call,
    make_on_workers,
    value_on_worker,
)
from tf_gc._compat.symbols import (
    CollectiveAllReduce,
    CollectiveReplicaLauncher,
    DistributedVariable,
    Mirrored,
    MirroredExtended,
    MultiWorkerExtended,
    OwnVariable,
    PerReplica,
    in_xla_context,
    registered_kernels,
    regroup,
    stop_recording,
)
