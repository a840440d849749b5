"""How often Python looks for garbage."""

import gc


def collect_rarely() -> None:
    """From now on Python looks for cycles after each 50,000 new objects, instead of 700.

    To trace a step makes many objects, few of which are garbage: with the default, a tenth of the
    time of the tests went into looking.
    """
    gc.set_threshold(50_000)
