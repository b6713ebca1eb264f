"""An agent's run through the stage: the requests with hints, the questions, the broken replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlx_stack_proxy.engine.request import UpstreamRequest
from mlx_stack_proxy.engine.session_id import SessionId
from mlx_stack_proxy.engine.verdicts import LoopDetected
from mlx_stack_proxy.loop_detection.stage import LoopDetection
from mlx_stack_proxy.state.store import SessionState
from tests.loop_detection.asking import NAMED, asked, reply_of
from tests.loop_detection.histories import Json, settings, user

Noticed = list[tuple[int, str]]  # a request's number, from 1, and the detector


class Played:
    """Each assistant message is a reply; the run goes on after a break as if it had gone out."""

    def __init__(
        self,
        messages: Sequence[Json],
        stage: LoopDetection | None = None,
        session: SessionId | None = None,
        **changes: Any,
    ) -> None:
        self.stage = stage or LoopDetection(settings(**changes))
        self._session = session
        self.hints: Noticed = []
        self.words: list[str] = []
        self.asked: Noticed = []
        self.broken: Noticed = []
        self.held: list[int] = []
        number = 0
        for at, message in enumerate([*messages, None]):
            if message is None or message["role"] == "assistant":
                number += 1
                self._play(number, list(messages[:at]), message)

    @property
    def is_silent(self) -> bool:
        return not (self.hints or self.broken)

    def _play(self, number: int, before: list[Json], reply: Json | None) -> None:
        whole = asked(before, self._session, f"r{number}")
        state = self.stage.open(whole)
        request = UpstreamRequest("fast", dict(whole.request.body))
        state.on_request(request)
        detector = state.remarks.notes.get("Loop", "").rpartition("=")[2]
        if request.body["messages"] != before:
            self.hints.append((number, detector))
            self.words.append(str(request.body["messages"][-1]["content"]))
        if reply is None:
            return
        if state.hold_whole():
            self.held.append(number)
        if isinstance(verdict := state.judge(reply_of(reply)), LoopDetected):
            (self.asked if verdict.doubt else self.broken).append((number, verdict.detector))


class Asked:
    """A session whose client sends no transcript, only questions; the store keeps its replies."""

    def __init__(self, session: SessionId = NAMED, **changes: Any) -> None:
        self.stage = LoopDetection(settings(**changes))
        self._session = session
        self.kept: list[str] = []
        self._number = 0

    def ask(self, question: str, reply: Json, **body: Any) -> tuple[str, str]:
        """Return the detector of the hint, and of the break; "" for none."""
        self._number += 1
        whole = asked([user(question)], self._session, f"r{self._number}")
        dict.update(whole.request.body, body)  # type: ignore[arg-type]
        whole.session_start = SessionState(
            "", turns=bool(self.kept), first_seen=1.0, replies=tuple(self.kept)
        )
        state = self.stage.open(whole)
        request = UpstreamRequest("fast", dict(whole.request.body))
        state.on_request(request)
        hinted = request.body["messages"] != [user(question)]
        hint = state.remarks.notes.get("Loop", "").rpartition("=")[2] if hinted else ""
        verdict = state.judge(reply_of(reply))
        if isinstance(verdict, LoopDetected):
            return hint, verdict.detector
        if digest := state.remarks.reply_digest:
            section = self.stage.rules.similar_replies
            assert section is not None
            self.kept = [*self.kept, digest][-section.window :]
        return hint, ""
