"""Runs a worker or a parameter server: the task that TF_CONFIG names.

TF_CONFIG='{"cluster": {...}, "task": {"type": "ps", "index": 0}}' python -m tf_gc.server
"""

import argparse

from tf_gc.parameter_server.server import run_server

if __name__ == "__main__":
    argparse.ArgumentParser("python -m tf_gc.server", description=__doc__).parse_args()
    run_server()
