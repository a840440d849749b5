"""Runs a worker or a parameter server: the task that TF_CONFIG names.

TF_CONFIG='{"cluster": {...}, "task": {"type": "ps", "index": 0}}' python -m tf_gc.server
"""

import sys

from tf_gc.parameter_server import run_server


def main() -> int:
    """Runs the task until it is killed; returns 2 for arguments, of which there are none."""
    if len(sys.argv) > 1:
        print(f"python -m tf_gc.server takes no arguments, got {sys.argv[1:]}", file=sys.stderr)
        return 2
    run_server()
    return 0


if __name__ == "__main__":
    sys.exit(main())
