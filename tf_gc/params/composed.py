"""Params that contain params: by the variable, by a trial; and dicts that stand for params."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from tf_gc.gradients import Gradient, Uncompressed
from tf_gc.params.arguments import CompressionParams, check, normalize
from tf_gc.params.kinds import CASTS, Cast, LowRank, NoCompression, OneBit, Quantized, TwoBit
from tf_gc.params.patterns import Pattern, check_patterns, matches, name_of
from tf_gc.reducers.reducer import Spec

# Whatever `compression_params` may be.
Params: TypeAlias = CompressionParams | Mapping[str, Any] | None

# The ways that a trial tries, and the values of `choice`.
FULL_PRECISION, COMPRESSED = WAYS = ("full precision", "compressed")


@dataclasses.dataclass(frozen=True)
class ByVariable(CompressionParams):
    """Chooses by the variable how its gradient is sent.

    ```python
    tf_gc.ByVariable({r"embeddings$": tf_gc.NoCompression(), "lstm": tf_gc.Quantized(4)})
    ```

    Attributes:
      rules: a mapping, or pairs, from patterns, as in `exclude` of `Quantized`, to what holds for
        the variables that they match: whatever `compression_params` may be, but no `Auto`. The
        first pattern that matches decides.
      default: what holds for all other variables.

    Raises:
      ValueError, TypeError: if a pattern or params are not what they may be.
    """

    rules: Mapping[Pattern, Params] | Iterable[tuple[Pattern, Params]]
    default: Params = None

    def __post_init__(self: Any) -> None:
        rules = self.rules.items() if isinstance(self.rules, Mapping) else self.rules
        pairs = tuple(rules) if isinstance(rules, Iterable) else (rules,)
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise TypeError(
                "rules must be a mapping from patterns to compression_params, or such pairs, got "
                f"{self.rules!r}"
            )
        patterns = check_patterns("rules", [pattern for pattern, _ in pairs])
        rules = ((each, _rule(params, f"rules[{name_of(each)}]")) for each, params in pairs)
        # Of several rules with one pattern the first decides.
        kept = tuple(rule for i, rule in enumerate(rules) if rule[0] not in patterns[:i])
        normalize(self, rules=kept, default=_rule(self.default, "default"))

    def contained(self: Any) -> list[CompressionParams]:
        return [*(params for _, params in self.rules), self.default]

    def spec_of(self: Any, gradient: Gradient) -> Spec | Uncompressed:
        meant = (params for pattern, params in self.rules if matches(pattern, gradient))
        return next(meant, self.default).spec_of(gradient)

    def patterns(self: Any) -> tuple[Pattern, ...]:
        return (*(pattern for pattern, _ in self.rules), *super().patterns())

    def __repr__(self: Any) -> str:
        rules = ", ".join(f"{name_of(pattern)}: {params!r}" for pattern, params in self.rules)
        return f"ByVariable({{{rules}}}, default={self.default!r})"


def _rule(given: Any, name: str) -> CompressionParams:
    params = from_params(given, name)
    words = "rules and default may have no tf_gc.Auto: give it this ByVariable as its params"
    check(not isinstance(params, Auto), words, params)
    return params


@dataclasses.dataclass(frozen=True)
class Auto(CompressionParams):
    """Tries full precision and compression in the first steps, and stays with the faster.

    After the warm-up the two take turns, four steps at a time and 16 steps each, which train as any
    others do. Then all workers choose the one with the smaller median time of a step, on the worker
    that is the slowest with it. The log and `strategy.report().trial` say what was measured.
    Checkpoints and backups keep the choice, for the same number of replicas. Two runs may choose
    differently; runs with the same choice give the same bits.

    Attributes:
      params: how gradients are compressed: whatever `compression_params` may be.
      choice: "full precision" or "compressed", to be chosen whatever the trial finds.

    Raises:
      ValueError, TypeError: if `params` are none, compress nothing or are an `Auto` themselves, or
        `choice` is something else.
    """

    params: Params = None
    choice: str | None = None

    def __post_init__(self) -> None:
        params = from_params(self.params, "params")
        fits = not isinstance(params, Auto) and bool(params.specs())
        words = "params must say what is compressed, for instance tf_gc.Quantized()"
        check(fits, words, self.params)
        words = f"choice must be None or one of {list(WAYS)}"
        check(self.choice in (None, *WAYS), words, self.choice)
        normalize(self, params=params)

    def contained(self: Any) -> list[CompressionParams]:
        return [self.params]

    def spec_of(self: Any, gradient: Gradient) -> Spec | Uncompressed:
        return self.params.spec_of(gradient)


# All kinds, by their type in a dict: `{"type": "2bit"}` is MXNet's form and name, others are ours.
KINDS: dict[str, Callable[..., CompressionParams]] = {
    "none": NoCompression,
    "1bit": OneBit,
    "2bit": TwoBit,
    "quantized": Quantized,
    "low_rank": LowRank,
    "by_variable": ByVariable,
    "auto": Auto,
    **{name: functools.partial(Cast, name) for name in CASTS},
}


def from_params(params: Params, name: str = "compression_params") -> CompressionParams:
    """Returns the value that `compression_params`, or an argument of another name, stands for.

    `None` is the default `Quantized()`, and a dict in MXNet's form, such as
    `{"type": "2bit", "threshold": 0.5}`, has the type and arguments of its class.

    Raises:
      ValueError: for an unknown type, an unknown key or a value out of range.
      TypeError: if `params` is none of the above.
    """
    if params is None:
        return Quantized()
    if isinstance(params, CompressionParams):
        return params
    if not isinstance(params, Mapping):
        raise TypeError(
            f"{name} must be None, a value such as tf_gc.Quantized(), or a dict such as "
            f'{{"type": "2bit", "threshold": 0.5}}, got {params!r}'
        )
    arguments = dict(params)
    kind = arguments.pop("type", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f'{name}["type"] must be one of {sorted(KINDS)}, got {kind!r}')
    signature = inspect.signature(KINDS[kind])
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ValueError(
            f"{name}: {error}; type {kind!r} allows {sorted(['type', *signature.parameters])}"
        ) from None
    return KINDS[kind](**arguments)
