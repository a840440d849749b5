"""The reducer of codes: a codec makes messages, a plan moves them, a wire packs them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_gc.codecs import CastCodec, Codec
from tf_gc.network.group import Network, Replica, cpu_of
from tf_gc.reducers.exchange import Push
from tf_gc.reducers.plan import Plan
from tf_gc.reducers.plans import AUTO, choose_plan, plans_worth_trying
from tf_gc.reducers.reducer import Reducer, Reduction, Way
from tf_gc.reducers.wire import COLUMNS, PACKED, ChosenWire, choose_wire, possible_wires


@dataclasses.dataclass(frozen=True)
class Codes(Way):
    """Sums gradients by messages of a codec.

    Attributes:
      codec: makes the messages.
      plan: the name of a plan, or "auto" for the one that sends least.
      wire: how codes travel: "packed", each in as many bits, "compact", zeros in fewer, or
        "columns", in fewest; `None` for the one with which a step takes less time.
    """

    codec: Codec
    plan: str = AUTO
    wire: str | None = None

    @property
    def native(self) -> bool:
        return self.codec.native

    def on(self, network: Network) -> "CodesReducer":
        plan = choose_plan(self.plan, self.codec, network)
        wire = choose_wire(self.wire, self.codec, network, plan.why_not_packed(network))
        return CodesReducer(self.codec, plan(network), wire)

    def push(self) -> "CodesPush":
        if self.plan != AUTO:
            raise ValueError(
                f"plan={self.plan!r} says how replicas sum gradients, and parameter servers get "
                f"them from each worker by itself: leave plan out, or say {AUTO!r}"
            )
        return CodesPush(self.codec, self.wire or PACKED)

    def alternatives(self, network: Network) -> list[tuple[str, str]]:
        return [
            (plan.name, wire)
            for plan in plans_worth_trying(self.plan, self.codec, network)
            for wire in possible_wires(self.wire, self.codec, network, plan.why_not_packed(network))
        ]


class CodesReducer(Reducer):
    """Encodes a bucket, sends it, and decodes the sum."""

    def __init__(self, codec: Codec, moves: Plan, wire: ChosenWire) -> None:
        """Initializes the reducer.

        Args:
          codec: makes the messages.
          moves: the plan that moves them.
          wire: how they travel.
        """
        self.codec = codec
        self.moves = moves
        self.name = str(codec)
        self.plan = moves.name
        self.wire = wire.name
        self.choice = str(wire)
        self.keeps_residuals = codec.keeps_residuals

    def reduce(self, bucket: int, replicas: Sequence[Replica], options: Any) -> Reduction:
        return self.moves.reduce(self.codec, self.wire, bucket, replicas, options)


class CodesPush(Push):
    """Encodes a bucket on the worker, and decodes it on the server."""

    def __init__(self, codec: Codec, wire: str) -> None:
        """Initializes the push.

        Args:
          codec: makes the messages.
          wire: one of `tf_gc.reducers.wire.WIRES`.
        """
        self._codec = codec
        self.name = str(codec)
        self.wire = wire
        self.keeps_residuals = codec.keeps_residuals

    def encode(
        self, gradients: Sequence[tf.Tensor], residuals: Sequence[Any], variables: Sequence[Any]
    ) -> tuple[tf.Tensor, int]:
        message = self._codec.encode(gradients, residuals if self.keeps_residuals else ())
        size = int(message.shape[1])
        if self.wire == PACKED:
            return message, size
        with tf.device(cpu_of(message.device)):
            compact, words = self._codec.pack(message, variables if self.wire == COLUMNS else ())
            return compact[:, : words[0]], size

    def decode(
        self,
        message: tf.Tensor,
        size: int,
        gradients: Sequence[tf.Tensor],
        variables: Sequence[Any],
    ) -> list[tf.Tensor]:
        like = [
            tf.raw_ops.Empty(shape=variable.shape.as_list(), dtype=gradient.dtype)
            for gradient, variable in zip(gradients, variables, strict=True)
        ]
        if self.wire == PACKED:
            message = tf.ensure_shape(message, [1, size])
        else:
            message = self._codec.unpack(message, size)
        return self._codec.decode([message], like)

    def in_full_precision(self, dtype: tf.DType) -> "CodesPush":
        return CodesPush(CastCodec(dtype.name), PACKED)
