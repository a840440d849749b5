"""Runs a worker or a parameter server: the task that TF_CONFIG names.

TF_CONFIG='{"cluster": {...}, "task": {"type": "ps", "index": 0}}' python -m tf_gc.server
"""

import sys

from tf_gc.parameter_server import run_server

if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(f"python -m tf_gc.server takes no arguments, got {sys.argv[1:]}")
    run_server()
