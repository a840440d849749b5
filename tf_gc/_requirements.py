"""Says in plain words that TensorFlow is missing, before anything imports it."""

import importlib.util

if importlib.util.find_spec("tensorflow") is None:
    raise ImportError(
        "tf_gc needs TensorFlow, and there is none in this environment: pip install tensorflow "
        "(or tensorflow-cpu, or 'tensorflow[and-cuda]'), 2.16 or newer"
    )
