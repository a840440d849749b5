"""Codecs: how a bucket of gradients becomes messages, and how messages become a sum."""

from tf_gc.codecs.cast import CastCodec
from tf_gc.codecs.codec import Codec
from tf_gc.codecs.native import NativeCodec

__all__ = ["CastCodec", "Codec", "NativeCodec"]
