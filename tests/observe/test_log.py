"""The log that users see without asking for it."""

import logging as python_logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from absl import logging

from tf_gc.observe.log import log_visibly


@contextmanager
def as_in_a_new_process() -> Iterator[None]:
    """Nobody has set up logging, and absl shows warnings."""
    before = logging.get_verbosity()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_logging.root, "handlers", [])
        logging.set_verbosity(logging.WARNING)
        yield
    logging.set_verbosity(before)


def test_good_news_is_seen_by_default_and_is_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    with as_in_a_new_process():
        logging.info("hidden")
        log_visibly("tf_gc: 100% better")
    assert capsys.readouterr().err == "INFO:absl.tf_gc:tf_gc: 100% better\n"


def test_who_silences_warnings_silences_it(capsys: pytest.CaptureFixture[str]) -> None:
    mine = python_logging.getLogger("absl.tf_gc")
    with as_in_a_new_process():
        logging.set_verbosity(logging.ERROR)
        log_visibly("tf_gc: better")
        logging.set_verbosity(logging.WARNING)
        mine.setLevel(python_logging.WARNING)
        log_visibly("tf_gc: better")
        mine.setLevel(python_logging.INFO)
    assert capsys.readouterr().err == ""
