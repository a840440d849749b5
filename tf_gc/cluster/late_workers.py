"""Names the workers that this one waits for, if it takes long to join their cluster.

TensorFlow waits without letting any other thread of Python run, and hides what it logs. So another
process runs this file, which therefore imports nothing of tf_gc. It ends with this process.
"""

import contextlib
import json
import select
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def naming_late_workers(seconds: float, waits: str, others: Mapping[str, str]) -> Iterator[None]:
    """Writes to stderr which of the others do not answer if the block takes some seconds.

    `waits` says who waits, and begins the line. `others` have their addresses, "host:port".
    """
    if not others or not sys.executable or vars(sys).get("frozen"):
        yield
        return
    arguments = json.dumps([seconds, waits, dict(others)])
    command = [sys.executable, "-I", "-S", __file__, arguments]
    # Ctrl-C is not for it.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield
        finally:
            process.kill()


def _main(seconds: float, waits: str, others: Mapping[str, str]) -> None:
    ended, _, _ = select.select([sys.stdin], [], [], seconds)
    if ended:
        return
    absent = [f"{who} at {address}" for who, address in others.items() if not _answers(address)]
    who = f"no answer from {', '.join(absent)}" if absent else "the ports of all others answer"
    print(f"WARNING: tf_gc: {waits}: {who}", file=sys.stderr, flush=True)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    _main(*json.loads(sys.argv[1]))
