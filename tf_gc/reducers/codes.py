"""The spec of codes: a codec makes messages, a plan moves them, a wire packs them."""

import dataclasses

import tensorflow as tf

from tf_gc.codecs import CastCodec, Codec
from tf_gc.network.group import Network, Replica, cpu_of
from tf_gc.reducers.flat_plans import AllGather, ScatterGather
from tf_gc.reducers.hierarchical import Hierarchical
from tf_gc.reducers.plan import Plan
from tf_gc.reducers.reducer import Push, Spec
from tf_gc.reducers.wire import PACKED, choose_wire

# The plan that sends the fewest bits in packed messages: nobody knows before how small others get.
AUTO = "auto"

# Of plans that send equally much, the first is chosen.
PLANS: tuple[type[Plan], ...] = (AllGather, ScatterGather, Hierarchical)


def plan_names() -> list[str]:
    """Returns the names that users may ask for."""
    return [AUTO, *(each.plan for each in PLANS)]


@dataclasses.dataclass(frozen=True)
class Codes(Spec):
    """Sums gradients by messages of a codec, a plan (`plan_names()`) and a wire (`choose_wire`)."""

    codec: Codec
    plan: str = AUTO
    wire: str | None = None
    warm_up: bool = False

    @property
    def native(self) -> bool:  # type: ignore[override]
        return self.codec.native

    def on(self, network: Network) -> Plan:
        plan = self.plan_on(network)
        why_not_packed = plan.why_not_packed(network)
        wire, reason = choose_wire(self.wire, self.codec, network, why_not_packed)
        reducer = plan(self.codec, wire, network)
        reducer.choice = f"{wire} wire: {reason}"
        return reducer

    def plan_on(self, network: Network) -> type[Plan]:
        """Returns the plan, or raises ValueError if the user asks for one of no use there."""
        if self.plan == AUTO:
            return min(PLANS, key=lambda plan: plan.cost(self.codec, network))
        (chosen,) = (each for each in PLANS if each.plan == self.plan)
        if refusal := chosen.refusal(network):
            raise ValueError(f"plan={self.plan!r} {refusal}")
        return chosen

    def push(self) -> "CodesPush":
        if self.plan != AUTO:
            raise ValueError(
                f"plan={self.plan!r} says how replicas sum gradients, and parameter servers get "
                f"them from each worker by itself: leave plan out, or say {AUTO!r}"
            )
        return CodesPush(self.codec, self.wire or PACKED)


class CodesPush(Push):
    """Sends messages of a codec on a wire."""

    def __init__(self, codec: Codec, wire: str) -> None:
        self._codec = codec
        self.name = str(codec)
        self.wire = wire
        self.residual_dtype = codec.residual_dtype

    def encode(self, worker: Replica) -> tuple[tf.Tensor, int]:
        message = self._codec.encode(worker.gradients, worker.residuals)
        size = int(message.shape[1])
        if self.wire == PACKED:
            return message, size
        with tf.device(cpu_of(message.device)):
            compact, words = self._codec.pack(message, worker.variables)
            return compact[:, : words[0]], size

    def decode(self, message: tf.Tensor, size: int, worker: Replica) -> list[tf.Tensor]:
        like = [
            tf.raw_ops.Empty(shape=variable.shape.as_list(), dtype=gradient.dtype)
            for gradient, variable in zip(worker.gradients, worker.variables, strict=True)
        ]
        if self.wire == PACKED:
            message = tf.ensure_shape(message, [1, size])
        else:
            message = self._codec.unpack(message, size)
        return self._codec.decode([message], like)

    def in_full_precision(self, dtype: tf.DType) -> "CodesPush":
        return CodesPush(CastCodec(dtype.name), PACKED)
