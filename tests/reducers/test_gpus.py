"""Plans on GPUs, as far as their graphs show without one."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import tensorflow as tf

import tf_gc
from tf_gc.network.collectives import CollectiveOps
from tf_gc.network.group import Channel, Group, LocalNetwork, Network, Replica
from tf_gc.params import CompressionParams
from tf_gc.reducers.wire import COMPACT

CODECS = [tf_gc.Quantized(), tf_gc.TwoBit(0.5), tf_gc.OneBit()]
PLANS = ["all_gather", "scatter_gather"]
REPLICAS = 3


def uses_of_messages(graph: tf.Graph) -> Iterator[tuple[tf.Operation, tf.Tensor]]:
    """Yields all ops that messages go through after they are made, and each message."""
    todo = [
        tensor
        for op in graph.get_operations()
        if op.type.startswith("TfGc>")
        for tensor in op.outputs
        if tensor.dtype == tf.int64
    ]
    followed = set()
    while todo:
        message = todo.pop()
        for op in message.consumers():
            yield op, message
            if op not in followed and not op.type.startswith("TfGc>"):
                followed.add(op)
                todo += [output for output in op.outputs if output.dtype == tf.int64]


def reduction(
    params: CompressionParams,
    plan: str,
    network: Network,
    shapes: Sequence[tuple[int, ...]] = ((300,), (7, 100)),
) -> Callable[[], Any]:
    """A function that sums a bucket of tensors; residuals are variables on the CPU."""
    residuals = [[tf.Variable(tf.zeros(shape)) for shape in shapes] for _ in network.devices]
    spec, *_ = params.specs()
    reducer = dataclasses.replace(spec, plan=plan).on(network)

    def reduce() -> Any:
        replicas = []
        for device, kept in zip(network.devices, residuals, strict=True):
            with tf.device(device):
                gradients = [tf.zeros(shape) for shape in shapes]
            replicas.append(Replica(device, gradients, kept))
        options = tf.distribute.experimental.CommunicationOptions()
        return reducer.reduce(0, replicas, options).sums

    return reduce


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("params", CODECS, ids=str)
def test_messages_stay_on_gpus(params: CompressionParams, plan: str) -> None:
    gpus = [f"/device:GPU:{i}" for i in range(REPLICAS)]
    with tf.Graph().as_default() as graph:  # where a device need not exist
        reduction(params, plan, LocalNetwork(gpus))()
    uses = list(uses_of_messages(graph))
    assert {op.device for op, _ in uses} == set(gpus)
    for op, message in uses:
        assert message.device in gpus
        if not op.type.startswith("TfGc>"):
            assert op.device == message.device, f"{op.type} takes it to another device"


class HostsWithGpus(LocalNetwork):
    """Two hosts, of which this process has one; nothing can be run, but built."""

    def __init__(self, gpus: int) -> None:
        super().__init__([f"/device:GPU:{i}" for i in range(gpus)])
        self.hosts = 2
        keys = tf_gc.CompressedMirroredStrategy(["CPU:0"]).extended._collective_keys
        options = tf.distribute.experimental.CommunicationOptions()
        self.collectives = CollectiveOps(["/device:CPU:0"], self.hosts, options, keys, {})

    def group(self, devices: Sequence[str]) -> Group:
        size = self.hosts * len(devices)

        def no_channel(bucket: int, options: Any) -> Channel:
            raise AssertionError("GPUs send messages themselves")

        on_cpus = Group((0,), size, self.collectives.open) if len(devices) == 1 else None
        return Group(tuple(range(len(devices))), size, no_channel, on_cpus)


@pytest.mark.parametrize(
    ("plan", "gpus"), [("all_gather", 1), ("scatter_gather", 1), ("hierarchical", 2)]
)
def test_a_host_packs_the_messages_of_its_gpus(plan: str, gpus: int) -> None:
    network, params = HostsWithGpus(gpus), tf_gc.Quantized(wire=COMPACT)
    reduce = reduction(params, plan, network, [(200_000,)])
    traced = tf.function(reduce, autograph=False).get_concrete_function()
    by_type: dict[str, set[str]] = {}
    todo, followed = [], set()
    for op in traced.graph.get_operations():
        if op.type.startswith(("TfGc>", "Collective")):
            by_type.setdefault(op.type, set()).add(op.device)
        if op.type in ("TfGc>Pack", "CollectiveGatherV2", "CollectiveAllToAllV2"):
            todo += op.outputs
    on_cpu = {
        op_type: by_type.pop(op_type)
        for op_type in list(by_type)
        if op_type in ("TfGc>Pack", "TfGc>Unpack") or op_type.startswith("Collective")
    }
    assert {"TfGc>Pack", "TfGc>Unpack", "CollectiveGatherV2"} <= on_cpu.keys()
    assert {device.rpartition("/")[2] for device in set().union(*on_cpu.values())} == {
        "device:CPU:0"
    }
    assert {"TfGc>Encode", "TfGc>Decode"} <= by_type.keys() or "TfGc>Reencode" in by_type
    assert set().union(*by_type.values()) == {"/device:GPU:0"}, by_type
    # Nothing that is computed from packed messages, until they are unpacked, is on a GPU.
    while todo:
        for op in todo.pop().consumers():
            if op not in followed and not op.type.startswith("TfGc>Unpack"):
                followed.add(op)
                assert op.device.endswith("device:CPU:0"), op.type
                todo += op.outputs
