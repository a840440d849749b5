"""Automatic scales and several levels, in as many bits an element as the user chooses."""

import dataclasses
from collections.abc import Iterable

from tf_gc.codecs import NativeCodec
from tf_gc.integers import as_integer
from tf_gc.params.codec_params import KINDS, SPARSE_RESIDUAL_BYTES, CodecParams
from tf_gc.params.compression import Pattern
from tf_gc.params.selective import BYPASS_SIZE


@dataclasses.dataclass(frozen=True)
class Quantized(CodecParams):
    """Sends each gradient element in so many bits and keeps the rest in a residual.

    Each block of 128 elements has its own scale s, found from the magnitudes in the block, which
    takes another 0.125 bits an element.

    Attributes:
      bits: how many bits an element takes, from 1 to 4. With 3 (the default) an element is sent
        as 0 or as plus or minus 5/32, 1/2 or 1 of s, whichever is nearest; with 4 as 0 or plus or
        minus 1/32, 1/8, 1/4, 3/8, 1/2, 3/4 or 1 of s. Levels that lie closer together towards zero
        also send a coordinate near its own size that is much smaller than the largest of its block
        (nonuniform quantization, NUQSGD, Ramezani-Kebrya et al. 2021). 2 bits are `TwoBit()`, 1 is
        `OneBit()`. docs/precision.md says what each costs and gains.
      bypass_size: tensors with fewer elements are reduced in full precision. `None` chooses 2,048.
      plan: who sends what to whom, as in `TwoBit`.
      sum_bits: how many bits an element of a sum takes in a "scatter_gather", as in `TwoBit`:
        with 3 bits 3 or 4. `None` means the finer one.
      warm_up: whether the first steps are in full precision, as in `TwoBit`. `None` means yes.
      wire: how codes travel, as in `TwoBit`. "compact" needs 2 bits or more, since codes of one bit
        do not get smaller.
      exclude: variables whose gradients are reduced in full precision, as in `TwoBit`.
      sparse: whether sparse gradients are compressed, as in `TwoBit`. `None` means those of large
        tables.
      sparse_residual_bytes: the largest residual that is kept for a table, as in `TwoBit`.

    Raises:
      ValueError: if an attribute has another value.
      TypeError: if `exclude` has something that is no pattern.
    """

    bits: int = 3
    bypass_size: int | None = None
    plan: str = "auto"
    sum_bits: int | None = None
    warm_up: bool | None = None
    wire: str | None = None
    exclude: Pattern | Iterable[Pattern] = ()
    sparse: bool | None = None
    sparse_residual_bytes: int = SPARSE_RESIDUAL_BYTES

    def __post_init__(self) -> None:
        bits = as_integer(self.bits)
        if bits not in KINDS:
            raise ValueError(f"bits must be one of {list(KINDS)}, got {self.bits!r}")
        object.__setattr__(self, "bits", bits)
        self._settle(BYPASS_SIZE, bits, warm_up=True)

    def _codec(self) -> NativeCodec:
        return NativeCodec(KINDS[self.bits], "auto", KINDS[self.sum_bits or self.bits])
