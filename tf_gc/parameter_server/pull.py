"""How workers get the changes of a variable's value from a server."""

from typing import Any

import tensorflow as tf

from tf_gc import ops
from tf_gc.parameter_server.per_worker import on_workers

# Differences are sent in three bits an element. The next one has what rounding leaves of it.
_CODEC = "three_bit"


class Cache:
    """The copies that workers have of a variable, to which a server sends what has changed.

    The server keeps for each worker what that worker has: both add the same decoded differences to
    the same values. They number the pulls. Where the numbers differ, as after a restart of the
    worker or a message that did not arrive, the server sends the whole variable, and both begin
    with that. A difference has `message_bytes`.
    """

    def __init__(self, strategy: Any, variable: Any) -> None:
        self._server, self._shape = variable.device, variable.shape
        self.message_bytes = 0
        self.on_worker = on_workers(strategy, self._shape)
        # Minus what the server believes of a worker: encoding adds it, as it adds residuals.
        self.minus = self.on_worker.on_server(self._server)
        # The number of the last pull; 0 before any.
        self.last_of_worker = on_workers(strategy, tf.TensorShape([]), tf.int64)
        self._last_of_server = self.last_of_worker.on_server(self._server)

    def pulled(self, value: tf.Tensor) -> tf.Tensor:
        """Returns the variable's value on the server as it was sent to the worker."""
        last = self.last_of_worker.read()
        with tf.device(self._server):
            last_sent = self._last_of_server.read()
            follows = tf.logical_and(tf.equal(last, last_sent), last > 0)
            # The numbers of messages that got lost are not used again.
            number = tf.maximum(last, last_sent) + 1
            # Whatever fails from here on, the numbers differ until both have what was sent.
            with tf.control_dependencies([self._last_of_server.assign(number)]):
                message, whole = tf.cond(
                    follows, lambda: self._difference(value), lambda: self._whole(value)
                )
        now = tf.cond(follows, lambda: self._gone_on(message), lambda: self._begun(whole))
        with tf.control_dependencies([now]):
            self.last_of_worker.assign(number)
        return now

    def _difference(self, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        before = self.minus.read()
        message = ops.encode([value], [self.minus.handle()], _CODEC)
        self.message_bytes = message.shape.num_elements() * message.dtype.size
        (sent,) = ops.decode([message], [self._empty()], _CODEC)
        # The rest that encoding has left there is not needed.
        self.minus.assign(tf.where(tf.math.is_finite(sent), before - sent, before))
        return message, tf.zeros([0])

    def _whole(self, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        self.minus.assign(-_finite(value))
        return tf.zeros([1, 0], tf.int64), tf.reshape(value, [-1])

    def _begun(self, whole: tf.Tensor) -> tf.Tensor:
        value = tf.reshape(whole, self._shape)
        self.on_worker.assign(_finite(value))
        return value

    def _gone_on(self, message: tf.Tensor) -> tf.Tensor:
        (sent,) = ops.decode([message], [self._empty()], _CODEC)
        before = self.on_worker.read()
        now = before + sent
        # An element that is not finite now may be later; both sides keep what it was before.
        self.on_worker.assign(tf.where(tf.math.is_finite(sent), now, before))
        return now

    def _empty(self) -> tf.Tensor:
        return tf.raw_ops.Empty(shape=self._shape.as_list(), dtype=tf.float32)


def _finite(value: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.math.is_finite(value), value, tf.zeros_like(value))
