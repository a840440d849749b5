"""Good news, which users see without asking for it."""

import logging as python_logging

from absl import logging

# absl shows warnings and hides INFO unless asked. A logger below its own has a level of its own.
_visible = logging.get_absl_logger().getChild("tf_gc")
_visible.setLevel(python_logging.INFO)


def log_visibly(line: str) -> None:
    """Logs a line at level INFO, which is visible wherever warnings are.

    `absl.logging.set_verbosity("error")` silences it, as it does warnings, and so does
    `logging.getLogger("absl.tf_gc").setLevel("WARNING")` alone.
    """
    if not logging.get_absl_logger().isEnabledFor(python_logging.WARNING):
        return
    if not python_logging.root.handlers:  # as absl does
        python_logging.basicConfig()
    _visible.info("%s", line)
