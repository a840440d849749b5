"""Codecs: how a bucket of gradients is encoded for the wire, and decoded."""

from tf_gc.codecs.base import Codec, MessageCodec
from tf_gc.codecs.no_compression import NoCompression
from tf_gc.codecs.one_bit import OneBit
from tf_gc.codecs.params import from_params
from tf_gc.codecs.two_bit import TwoBit

__all__ = ["Codec", "MessageCodec", "NoCompression", "OneBit", "TwoBit", "from_params"]
