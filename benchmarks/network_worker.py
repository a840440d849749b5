"""A worker process of benchmarks/network.py: obeys the lines it reads, a JSON object each.

    {"steps": n}                         -> {"seconds": [n numbers], "predicted_bytes": number}
    {"receive": bytes}                   -> {"port": number}, then {"seconds": s}
    {"send": bytes, "to": [host, port]}  -> {}

It ends when its input does, even in the middle of a step.
"""

import json
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import models
import report
import tensorflow as tf

import tf_gc

CHUNK = 1 << 20

# TensorFlow and its libraries may print; the answers go where they cannot.
_answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def make_strategy(task: dict[str, Any]) -> tf.distribute.Strategy:
    if task["mode"] == "alone":
        return tf.distribute.get_strategy()
    if task["mode"] == "stock":
        return tf.distribute.MultiWorkerMirroredStrategy()
    return tf_gc.CompressedMultiWorkerMirroredStrategy(
        compression_params=task["compression_params"]
    )


def build(
    strategy: tf.distribute.Strategy, name: str, batch: int
) -> tuple[Callable[[], None], keras.Model]:
    """Returns a function that runs one training step of a model, and the model."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        task = models.MODELS[name](batch)
        variables = task.model.trainable_variables
        optimizer = keras.optimizers.SGD(1e-3, momentum=0.9)
        optimizer.build(variables)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    x, y = tf.constant(task.x), tf.constant(task.y)

    def replica_step() -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(y, task.model(x, training=True))
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    @tf.function
    def step() -> None:
        strategy.run(replica_step)

    return step, task.model


def answer(value: dict[str, Any]) -> None:
    _answers.write(json.dumps(value) + "\n")


def peak_memory() -> int:
    """Returns the most memory in use so far, without files, which processes share."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = {line.split()[0]: line.split()[1] for line in lines if line.endswith(" kB")}
    return 1024 * (int(kilobytes["VmHWM:"]) - int(kilobytes["RssFile:"]))


def run_steps(step: Callable[[], None], count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds


def receive(size: int) -> None:
    with socket.create_server(("", 0)) as server:
        answer({"port": server.getsockname()[1]})
        connection, _ = server.accept()
    with connection:
        start = time.perf_counter()
        while size > 0:
            got = len(connection.recv(CHUNK))
            if not got:
                raise ConnectionError(f"{size} bytes are missing")
            size -= got
    answer({"seconds": time.perf_counter() - start})


def send(size: int, address: tuple[str, int]) -> None:
    chunk = memoryview(bytes(CHUNK))
    with socket.create_connection(address) as connection:
        while size > 0:
            connection.sendall(chunk[: min(size, CHUNK)])
            size -= CHUNK
    answer({})


def read_requests(requests: queue.Queue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        requests.put(json.loads(line))
    os._exit(0)


def main() -> None:
    task = json.loads(sys.argv[1])
    requests: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=read_requests, args=(requests,), daemon=True).start()
    tf.config.threading.set_intra_op_parallelism_threads(task["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(task["threads"])
    strategy = make_strategy(task)
    step, model = build(strategy, task["model"], task["batch_size"])
    report.finish_warm_up(strategy, step)
    traffic = getattr(strategy, "traffic", None)
    answer(
        {
            "parameters": model.count_params(),
            "stock_bytes": traffic.stock_bytes if traffic else None,
            "memory_bytes": peak_memory(),
        }
    )
    while True:
        request = requests.get()
        if "steps" in request:
            seconds = run_steps(step, request["steps"])
            traffic = getattr(strategy, "traffic", None)
            answer({"seconds": seconds, "predicted_bytes": traffic.sent_bytes if traffic else None})
        elif "receive" in request:
            receive(request["receive"])
        else:
            send(request["send"], tuple(request["to"]))


if __name__ == "__main__":
    main()
