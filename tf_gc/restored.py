"""What became of the residuals of a checkpoint, for the log."""

from collections.abc import Iterable, Sequence

from absl import logging

NOTHING_COMPRESSED = "nothing is compressed now"


def said_of(names: Iterable[str], what: str) -> str:
    """Says in words what happened to the residuals of some variables."""
    return f"residuals of {', '.join(sorted(names))} {what}"


class Restore:
    """The keys in the latest restored checkpoint, and whether the log says what became of them.

    Before any restore, this stands for a checkpoint without residuals.
    """

    def __init__(self, keys: frozenset[str], warm_ups: frozenset[str]) -> None:
        self.keys = keys
        self.warm_ups = warm_ups
        self.said = False

    def drop(self) -> None:
        self.said = True
        if self.keys:
            logging.warning(
                f"tf_gc: residuals of {len(self.keys)} variables dropped, {NOTHING_COMPRESSED}"
            )

    def say(self, mine: Sequence[str]) -> None:
        """Logs which keys are in both, in the checkpoint only, and in `mine` only."""
        self.said = True
        if not self.keys and not mine:
            return
        if not self.keys:
            logging.info("tf_gc: residuals of all %d variables start at zero", len(mine))
            return
        both = self.keys & set(mine)
        rest = []
        if unknown := self.keys - both:
            rest.append(said_of(unknown, "not used, there are no such variables so far"))
        if new := set(mine) - both:
            rest.append(said_of(new, "start at zero"))
        if unknown and new:
            rest.append("Keras numbers models and layers without a name: give them names")
        level = logging.WARNING if rest else logging.INFO
        logging.log(
            level, "tf_gc: %s", "; ".join([f"residuals of {len(both)} variables restored", *rest])
        )
