"""Instance keys: the numbers by which replicas recognize the same collective.

TensorFlow passes the key of a collective to the `tf.function` that contains it as a hidden
input, and draws a new number for that input at each call. Four things that TensorFlow's own
launcher leaves open are settled here:

* A function that is called from the body of a `tf.while_loop` or a branch of a `tf.cond` (Keras
  does so for `steps_per_execution > 1`) gets its keys from the function around that body:
  TensorFlow asks the body, which has no caller that could provide them, and fails with "You must
  feed a value for placeholder tensor".
* Each iteration of a loop has keys of its own. TensorFlow keeps the shapes of a collective by its
  key, so that iterations which share a key fail where shapes differ ("Shape mismatch in the
  collective instance"), as with sparse gradients.
* The local replicas draw together. If each drew its key by itself, steps that run in two threads
  could draw in turns, and a replica would meet the others of the other step.
* Collectives of one kind take the same keys in turn. All workers ask the first one about a new key
  before they begin, and keep a record of it for ever.
"""

import collections
import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_gc import _compat

# The keys of iterations lie in [_LOOPS, 2 * _LOOPS), above those that TensorFlow draws.
_LOOPS = 1 << 30
# How far apart the keys of a loop's iterations are: more than a group's collectives in a function.
_STRIDE = 1 << 12
# Multiplies the key outside of a loop, which in nested loops is the key of an iteration itself.
# The factor is odd, so that different keys stay different, and keeps the iterations of two nested
# loops apart as long as there are fewer than 70,000 of them in all: the best factor of a search.
_SPREAD = 101683
_TURNS = 16  # how many keys a kind has: as many of its collectives may be on their way

_drawing = threading.Lock()  # held while the local replicas draw


def in_iteration(key: tf.Tensor, iteration: tf.Tensor) -> tf.Tensor:
    """Returns the key of a collective in one iteration of a loop, given its key outside of it.

    All are int32 scalars; iterations count from 0. The keys of 4,096 collectives whose keys outside
    of the loop are consecutive numbers differ from each other over 262,144 iterations.
    """
    with tf.device("CPU:0"):
        spread = tf.cast(key, tf.int64) * _SPREAD + tf.cast(iteration, tf.int64) * _STRIDE
        return tf.cast(_LOOPS + spread % _LOOPS, tf.int32)


class KeySource:
    """Gives the launchers of a group's local replicas the instance keys of their collectives.

    `draw` draws the next number for a replica: all that draw equally often get the same numbers.
    """

    def __init__(self, replicas: int, draw: Callable[[int], int]) -> None:
        self._replicas = range(replicas)
        self._draw = draw
        self._turns: Any = collections.defaultdict(lambda: collections.deque(maxlen=_TURNS))

    def key(self, replica: int, hidden_input: Callable[[], Any], kind: Hashable = None) -> Any:
        """Returns a replica's key of one more collective, an int32 scalar.

        In a function that is being built, it is a tensor of that graph or of one around it.
        `hidden_input` adds a hidden input to the innermost function that is no loop and no branch,
        and returns it; in a graph of TensorFlow 1 it returns the key, a number. `kind` has all
        that the workers have to agree on, if they know it when they build the function.
        """
        if tf.executing_eagerly():
            if len(self._replicas) == 1:
                return self._drawn(replica, threading.local(), kind)
            return _eager(self._draw(replica))  # the others draw theirs in calls of their own
        graph = tf.compat.v1.get_default_graph()
        counters = []
        while getattr(graph, "is_control_flow_graph", False):
            if _compat.is_loop(graph):
                counters.append(_compat.loop_counter(graph))
            graph = graph.outer_graph
        key = hidden_input()
        if isinstance(key, int):
            return key
        collective = self._next_collective(graph, replica)

        def of_call() -> tf.Tensor | int:
            if tf.executing_eagerly():
                return self._drawn(replica, collective, None if counters else kind)
            return self.key(replica, hidden_input, kind)

        _compat.replace_call_time_value(key, of_call)
        for counter in reversed(counters):  # from the outermost loop to the innermost
            key = in_iteration(key, counter)
        return key

    def _drawn(self, replica: int, collective: threading.local, kind: Hashable) -> tf.Tensor:
        """Returns the key of a call for one replica; the first that asks draws for all."""
        keys: dict[Any, tf.Tensor] = vars(collective)  # of this thread
        if replica not in keys:
            with _drawing:
                turns = self._turns[kind]
                if kind and len(turns) == _TURNS:
                    turns.rotate(-1)
                else:
                    turns.append({each: _eager(self._draw(each)) for each in self._replicas})
                keys.update(turns[-1])
        return keys.pop(replica)

    def _next_collective(self, graph: Any, replica: int) -> Any:
        """Returns the group's collective in a function that it is a replica's turn to launch."""
        if not hasattr(graph, "_tf_gc_collectives"):
            graph._tf_gc_collectives = collections.Counter(), {}
        asked, known = graph._tf_gc_collectives
        asked[self, replica] += 1
        return known.setdefault((self, asked[self, replica]), threading.local())


def _eager(number: int) -> tf.Tensor:
    # Of a Python number TensorFlow would keep a copy for ever, one for each collective.
    return tf.constant(np.asarray(number, np.int32))
