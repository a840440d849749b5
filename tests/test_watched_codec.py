"""A watched codec is the codec that it watches, in everything that others ask of it."""

from tf_gc.codecs import Codec, Watched


def test_it_hands_on_everything() -> None:
    asked = {name for name in vars(Codec) if not name.startswith("_")}
    assert asked
    assert asked <= vars(Watched).keys()
