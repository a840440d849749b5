"""The log that users see without asking for it."""

import logging as python_logging

import pytest
from absl import logging

from tf_gc.observe.log import log_visibly


def test_good_news_is_seen_unless_somebody_silences_warnings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # As in a new process: nobody has set up logging, and absl shows warnings.
    mine = python_logging.getLogger("absl.tf_gc")
    before = logging.get_verbosity()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_logging.root, "handlers", [])
        logging.set_verbosity(logging.WARNING)
        logging.info("hidden")
        log_visibly("tf_gc: 100% better")
        logging.set_verbosity(logging.ERROR)
        log_visibly("silenced")
        logging.set_verbosity(logging.WARNING)
        mine.setLevel(python_logging.WARNING)
        log_visibly("silenced")
        mine.setLevel(python_logging.INFO)
    logging.set_verbosity(before)
    assert capsys.readouterr().err == "INFO:absl.tf_gc:tf_gc: 100% better\n"
