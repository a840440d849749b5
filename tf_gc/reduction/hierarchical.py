"""The inner level of the hierarchical plan: sums over the replicas of one host."""

from collections.abc import Sequence

import tensorflow as tf


def sum_on_host(
    gradients: Sequence[Sequence[tf.Tensor]],
    residuals: Sequence[Sequence[tf.Variable]],
    devices: Sequence[str],
    leader: int,
) -> list[tf.Tensor]:
    """Sums a bucket over the replicas of this host, in float32, on the leader's device.

    The leader then sends for the whole host. So its residuals also take over what is in the
    residuals of the host's other replicas: after a restart, or after training with another plan,
    those need not be zero.

    Args:
      gradients: for each replica of this host, the bucket's tensors.
      residuals: for each replica, the residuals of its tensors.
      devices: the replicas' devices.
      leader: the number of the replica that sums.

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
