"""The same seed, data and replicas give the same bits in two runs, whatever the op determinism."""

from pathlib import Path

from tests.cases import cases
from tests.programs import output_of

PROGRAM = Path(__file__).with_name("train_from_a_seed.py")


def digests(of: str, new: bool = False) -> list[str]:
    lines = output_of(PROGRAM, of, new=new).splitlines()
    return [line for line in lines if line.startswith("digest ")]


# In a new process with other addresses and another seed of hash().
@cases("of, number, new", ("few", 2, False), ("all", 4, True))
def test_two_runs_end_with_the_same_weights_and_residuals(of: str, number: int, new: bool) -> None:
    first = digests(of)
    assert first == digests(of, new)
    assert len(set(first)) == number  # that codecs differ: it is no constant
