"""The members of a reduction, and how messages get from one member to another."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

# What a member receives: tensors whose rows, taken together and in order, are the messages of all
# members in the order of ranks.
Received = Sequence[tf.Tensor]


class Exchange(Protocol):
    """Moves messages, int64 [rows, words], between the members of a group."""

    def all_gather(self, messages: Sequence[tf.Tensor]) -> Sequence[Received]:
        """Gives each local member the messages [1, words] of all members."""

    def all_to_all(self, rows: Sequence[tf.Tensor]) -> Sequence[Received]:
        """Gives each local member its own row of the [members, words] of every member."""


class LocalExchange:
    """The exchange if all members are local: TensorFlow copies a tensor to where it is used."""

    def all_gather(self, messages: Sequence[tf.Tensor]) -> Sequence[Received]:
        return [messages] * len(messages)

    def all_to_all(self, rows: Sequence[tf.Tensor]) -> Sequence[Received]:
        return [[_row(sent, i) for sent in rows] for i in range(len(rows))]


def _row(messages: tf.Tensor, i: int) -> tf.Tensor:
    # Without this, TensorFlow would slice on the first GPU, and all messages would go there.
    with tf.device(messages.device):
        return messages[i : i + 1]


@dataclasses.dataclass(frozen=True)
class Group:
    """The members of an exchange.

    Attributes:
      devices: the devices of the local members.
      ranks: their ranks among all members.
      size: the number of members, on all hosts.
      exchange: returns what moves the messages of a bucket, given the bucket's number and the
        `CommunicationOptions`. Buckets are independent, so their transfers may overlap.
    """

    devices: tuple[str, ...]
    ranks: tuple[int, ...]
    size: int
    exchange: Callable[[int, Any], Exchange]


def local_group(devices: Sequence[str]) -> Group:
    """Returns the group of all replicas of one host."""
    return Group(
        tuple(devices),
        ranks=tuple(range(len(devices))),
        size=len(devices),
        exchange=lambda bucket, options: LocalExchange(),
    )


def decode_once_per_host(
    devices: Sequence[str],
    received: Sequence[Received],
    like: Sequence[Sequence[tf.Tensor]],
    decode: Callable[[Received, Sequence[tf.Tensor]], list[tf.Tensor]],
) -> list[list[tf.Tensor]]:
    """Decodes what each local member received; CPU devices share memory, so one decodes for all."""
    sums: list[list[tf.Tensor]] = []
    on_host: list[tf.Tensor] | None = None
    for device, messages, tensors in zip(devices, received, like, strict=True):
        with tf.device(device):
            if not is_cpu(device):
                sums.append(decode(messages, tensors))
            elif on_host is None:
                on_host = decode(messages, tensors)
                sums.append(on_host)
            else:
                # TensorFlow passes a tensor between CPU devices without a copy.
                sums.append([tf.identity(value) for value in on_host])
    return sums


def is_cpu(device: str) -> bool:
    """Whether a device uses the host's memory."""
    return tf.DeviceSpec.from_string(device).device_type == "CPU"


def message_bytes(message: tf.Tensor) -> int:
    """Returns the size in bytes of a tensor of messages, whose shape is known."""
    return int(message.shape.num_elements() * message.dtype.size)
