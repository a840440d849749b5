"""Other params for some variables than for the rest."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from tf_gc.params.auto import Auto
from tf_gc.params.compression import CompressionParams, Gradient, LeftAlone
from tf_gc.params.from_params import from_params, register
from tf_gc.params.patterns import Patterns, check_patterns, matches, name_of
from tf_gc.reducers.reducer import Spec


@register("by_variable")
@dataclasses.dataclass(frozen=True, repr=False)
class ByVariable(CompressionParams):
    """Chooses by the variable how its gradient is sent.

    ```python
    tf_gc.ByVariable({r"embeddings$": tf_gc.NoCompression(), "lstm": tf_gc.Quantized(4)})
    ```

    Attributes:
      rules: for each pattern, what holds for the variables that it matches: whatever
        `compression_params` may be. The first pattern that matches decides. A pattern is a
        regular expression, searched for anywhere in a variable's path (`variable.path` of a Keras
        variable, the name without ":0" of a `tf.Variable`), or a function that takes a
        `tf_gc.params.Gradient`, which has `path`, `shape` and `dtype`, and returns whether its
        variable is meant. A mapping, or pairs; kept as a tuple of pairs.
      default: what holds for all other variables; `None` for `Quantized()`.

    Each variable has the warm-up of its own params. Rules that share a codec, a plan and a warm-up
    share buckets.

    Raises:
      ValueError: if a pattern is empty or no regular expression, or params have an unknown type,
        key or value.
      TypeError: if `rules`, a pattern or params are of another type.
    """

    rules: Any
    default: Any = None

    def __post_init__(self) -> None:
        default = from_params(self.default, "default")
        rules = self.rules.items() if isinstance(self.rules, Mapping) else self.rules
        pairs = tuple(rules) if isinstance(rules, Iterable) else (rules,)
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise TypeError(
                "rules must be a mapping from patterns to compression_params, or such pairs, got "
                f"{self.rules!r}"
            )
        settled = tuple(
            (pattern, from_params(params, f"rules[{name_of(pattern)}]"))
            for pattern, params in pairs
        )
        for params in (default, *(params for _, params in settled)):
            if isinstance(params, Auto):
                raise ValueError(
                    "rules and default may have no tf_gc.Auto, which tries one way for all "
                    f"variables: give it this ByVariable as its params; got {params!r}"
                )
        check_patterns("rules", tuple(pattern for pattern, _ in settled))
        object.__setattr__(self, "rules", settled)
        object.__setattr__(self, "default", default)

    def specs(self) -> tuple[Spec, ...]:
        everyone = [*(params for _, params in self.rules), self.default]
        return tuple(dict.fromkeys(spec for params in everyone for spec in params.specs()))

    def spec_of(self, gradient: Gradient) -> Spec | LeftAlone:
        return self._params_of(gradient).spec_of(gradient)

    def patterns(self) -> Patterns:
        everyone = [*(params for _, params in self.rules), self.default]
        mine = (pattern for pattern, _ in self.rules)
        return Patterns((*mine, *(p for params in everyone for p in params.patterns())))

    def _params_of(self, gradient: Gradient) -> CompressionParams:
        for pattern, params in self.rules:
            if matches(pattern, gradient):
                return params
        return self.default

    def __repr__(self) -> str:
        rules = ", ".join(f"{name_of(pattern)}: {params!r}" for pattern, params in self.rules)
        return f"ByVariable({{{rules}}}, default={self.default!r})"
