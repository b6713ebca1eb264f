"""A backend's health; the beginning and the end of a failure are each logged and reported once."""

from __future__ import annotations

from collections.abc import Callable

from .. import log


class Trouble:
    """A backend's current failure, if any."""

    def __init__(self, sentence: str) -> None:
        """``sentence``: why the backend does not work yet, for people."""
        self.sentence: str | None = sentence  # None: all is well
        # Called with the sentence when a failure begins, and with None when it is over.
        self.on_change: Callable[[str | None], None] = lambda sentence: None
        self._reported = False

    def begin(self, sentence: str, **where: str) -> None:
        """Record a failure, or a change of its reason."""
        if sentence != self.sentence:
            log.get().error("store_fails", reason=sentence, **where)
        self.sentence = sentence
        if not self._reported:
            self._reported = True
            self.on_change(sentence)

    def end(self, **where: str) -> None:
        """Record that the backend works."""
        self.sentence = None
        if self._reported:
            log.get().info("store_works", **where)
            self._reported = False
            self.on_change(None)
