"""The links between the workers of a local cluster, with faults on demand.

Each worker listens on a port of its own and reaches the others through links: the clusters in
their TF_CONFIG differ in the addresses of the others. A worker asks for a fault by `order`, at
the moment that suits it.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import threading
import time

from tests import ports
from tf_gc.launch.tasks import tasks_of

LOCALHOST = "127.0.0.1"


class Links:
    """All links of a cluster, with TF_CONFIG of each worker, and the port for orders."""

    def __init__(self, workers: int) -> None:
        self.resets = 0  # how many connections were reset
        self._bytes_per_second = 0.0  # of each direction of a connection; 0 is no limit
        self._bytes_to_reset = math.inf
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._servers: list[socket.socket] = []
        own = ports.free_ports(workers)
        self.configs = []
        for worker in range(workers):
            seen = [
                own[other] if other == worker else self._serve(self._forward, own[other])
                for other in range(workers)
            ]
            addresses = [f"{LOCALHOST}:{port}" for port in seen]
            self.configs.append(tasks_of({"worker": workers}, addresses)[worker].tf_config)
        self.port = self._serve(self._obey, 0)

    def __enter__(self) -> Links:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        self._reset()

    def _serve(self, handle: object, port: int) -> int:
        server = socket.create_server((LOCALHOST, 0))
        self._servers.append(server)

        def accept() -> None:
            with contextlib.suppress(OSError):  # closed
                while True:
                    connection, _ = server.accept()
                    start(handle, connection, port)

        start(accept)
        return server.getsockname()[1]

    def _forward(self, client: socket.socket, port: int) -> None:
        try:
            worker = socket.create_connection((LOCALHOST, port))
        except OSError:  # it does not listen yet, or any more
            abort(client)
            return
        with self._lock:
            self._connections |= {client, worker}
        start(self._pump, client, worker)
        self._pump(worker, client)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                if self._bytes_per_second:
                    time.sleep(len(data) / self._bytes_per_second)
                self._bytes_to_reset -= len(data)
                if self._bytes_to_reset <= 0:
                    self._reset()
                target.sendall(data)
        with self._lock:
            self._connections -= {source, target}
        abort(source)
        abort(target)

    def _reset(self) -> None:
        self._bytes_to_reset = math.inf
        with self._lock:
            connections = list(self._connections)
        self.resets += len(connections)
        for connection in connections:
            abort(connection)

    def _obey(self, client: socket.socket, _: int) -> None:
        with client, client.makefile() as orders:
            what, number = orders.readline().split()
            if what == "rate":
                self._bytes_per_second = float(number)
            elif float(number):
                self._bytes_to_reset = float(number)
            else:
                self._reset()
            client.sendall(b"done")


def order(port: int, what: str, number: float = 0) -> None:
    """Asks for "reset", of all connections after a number of bytes, or for a "rate" in bytes/s."""
    with socket.create_connection((LOCALHOST, port)) as connection:
        connection.sendall(f"{what} {number}\n".encode())
        connection.recv(16)


def start(function: object, *arguments: object) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()


def abort(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # A thread that waits for data keeps the connection open; shutdown would end it politely.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RD)
    connection.close()
