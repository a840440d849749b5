"""The hierarchical plan's inner level: the replicas of a host, over their fast link."""

from collections.abc import Sequence

import tensorflow as tf


def sum_on_host(
    gradients: Sequence[Sequence[tf.Tensor]],
    residuals: Sequence[Sequence[tf.Variable]],
    devices: Sequence[str],
    leader: int,
) -> list[tf.Tensor]:
    """Sums a bucket over the replicas of this host, in float32, on the leader's device.

    The leader then speaks for the host, so its residuals take over what the others still have to
    send: after a restart or another plan, theirs need not be zero.

    Args:
      gradients: for each replica of this host, the bucket's tensors.
      residuals: for each replica, their residuals.
      devices: the replicas' devices.
      leader: the replica that sums.

    Returns:
      The sums, float32, on the leader's device.
    """
    with tf.device(devices[leader]):
        for of_variable in zip(*residuals, strict=True):
            others = [residual for i, residual in enumerate(of_variable) if i != leader]
            _drain(others, into=of_variable[leader])
        return [
            tf.add_n([tf.cast(tensor, tf.float32) for tensor in tensors])
            for tensors in zip(*gradients, strict=True)
        ]


def _drain(residuals: Sequence[tf.Variable], into: tf.Variable) -> None:
    if residuals:
        into.assign_add(tf.add_n([residual.read_value() for residual in residuals]))
    for residual in residuals:
        with tf.device(residual.device):
            residual.assign(tf.zeros(residual.shape))


def share_on_host(
    sums: Sequence[tf.Tensor], like: Sequence[tf.Tensor], devices: Sequence[str]
) -> list[list[tf.Tensor]]:
    """Returns, for each replica of this host, the leader's float32 sums on its device."""
    shared = []
    for device in devices:
        with tf.device(device):
            shared.append(
                [tf.cast(total, tensor.dtype) for total, tensor in zip(sums, like, strict=True)]
            )
    return shared
