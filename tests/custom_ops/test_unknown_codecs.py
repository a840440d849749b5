"""A codec that the library does not know is an error wherever one is passed."""

import pytest

from tests.custom_ops.native import Codec, EightBit, Levels, Library, OneBit
from tf_gc.ops.library import codec_names

# Counts are codecs of messages, but gradients are not encoded with them.
COUNTS = [3, 4, 5]
# The last ones become known codecs if they are cut to 8 bits.
UNKNOWN = [-1, 0, 11, 99, 255, 256 + Codec.FIXED, 2**16 + OneBit.AUTO, -256 + Codec.AUTO]


@pytest.mark.parametrize("codec", UNKNOWN + COUNTS)
def test_the_c_interface_returns_an_error(library: Library, codec: int) -> None:
    results = library.results_for(codec)
    assert results == dict.fromkeys(results, 0)


@pytest.mark.parametrize("codec", [*Codec, *OneBit, *Levels, *EightBit])
def test_the_c_interface_takes_the_codecs_of_gradients(library: Library, codec: int) -> None:
    results = library.results_for(codec)
    fixed = codec in (Codec.FIXED, OneBit.FIXED)
    assert {name for name, result in results.items() if result <= 0} == (
        {"reencode"} if fixed else {"count"}
    )


def test_names_of_codecs(library: Library) -> None:
    none = (0, 0)
    expected = {
        **{"two_bit": tuple(Codec), "one_bit": tuple(OneBit)},
        # These have automatic scales only.
        **{"three_bit": (0, Levels.THREE_BIT), "four_bit": (0, Levels.FOUR_BIT)},
        **{"eight_bit": (0, EightBit.AUTO)},
        **{"": none, "two_bi": none, "two_bit ": none, "TWO_BIT": none},
    }
    assert codec_names() == [*expected][:5]
    assert expected == {
        name: tuple(library.call("codec", name.encode(), auto) for auto in (False, True))
        for name in expected
    }
