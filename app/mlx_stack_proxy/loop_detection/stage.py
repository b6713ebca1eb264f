"""The stage: gives the model a hint when an agent loops, and breaks the loop.

Across turns it reads the history from the request's messages, and the detectors look for loops: in
the history, for the hint, and again with the reply as the newest turn, for the break. Within a
reply a :class:`ReplyWatch` sees every frame. History alone never refuses a request: the model is
asked, with the hint, and its reply is judged.
"""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from typing import Any, Final

from ..engine import own_words
from ..engine.exchange import Exchange
from ..engine.outcome import Incident, Inquiry
from ..engine.pipeline import Stage, StageState
from ..engine.request import UpstreamRequest
from ..engine.verdicts import Cut, LoopDetected, Verdict
from ..settings import Settings
from ..wire.call import Call
from ..wire.delta import Delta
from ..wire.reply import ChoiceReply, Reply
from . import call_keys, detectors, loop_model, repetition
from .call_keys import CallKey
from .finding import DetectorView, Finding, replace_by_notice
from .generation.reply_watch import REPEATED_CALLS, ReplyWatch
from .history import History
from .memory import SessionMemory, Sessions, TaskNotes
from .turns import acts

NO_PROGRESS: Final = "no_progress"
ASK_AGAIN: Final = 50  # calls of a run without progress between two questions to another tier


class LoopDetection(Stage):
    """The stage: its rules, and the memory of all sessions."""

    name = "loop_detection"
    bypass = "loop"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rules = rules = settings.reliability.loop_detection
        section, progress = rules.identical_calls, rules.no_progress
        self.salient = section is not None and section.key == "salient"
        # A shorter transcript in which no turn acts is part of no loop that we look for.
        self.least_turns = min(
            rules.warn_threshold + 1,
            rules.duplicate_threshold,
            *(progress.warn, progress.ask, progress.hard - 1),
        )
        if section or rules.name_cycle or rules.tool_frequency or rules.judge.enabled:
            self.least_turns = 0
        self.sessions = Sessions(rules.max_tracked_threads or rules.max_sessions)

    def continue_from(self, predecessor: Stage) -> None:
        """Keep the memory of the stage with earlier settings, if it still fits."""
        assert isinstance(predecessor, LoopDetection)
        if predecessor.salient == self.salient:
            self.sessions = predecessor.sessions

    def open(self, exchange: Exchange) -> StageState:
        make = _ReportingState if self.rules.on_break == "report" else _LoopState
        return make(self, exchange)

    def forget(self, session: str | None) -> None:
        """Forget a session by its hash; None: all sessions."""
        self.sessions.forget(session)


class _LoopState(ReplyWatch):
    """One attempt. Nothing is read or remembered of a request that can't be part of a loop."""

    _reports = False  # `on_break: report`

    def __init__(self, stage: LoopDetection, exchange: Exchange) -> None:
        super().__init__(exchange, stage.settings)
        self._stage = stage
        # Whether turns before this request may be part of a loop.
        self._follows = self._may_follow() and bool(self._history.turns or self._history.replies)

    def _may_follow(self) -> bool:
        exchange, sessions, least = self._exchange, self._stage.sessions, self._stage.least_turns
        if exchange.session_start and exchange.session_start.replies:
            return True
        if sessions.find(exchange.request.session.hash, exchange.session_start) is not None:
            return True
        messages = reversed(exchange.request.blocks.messages)
        replies = (message for message in messages if message.get("role") == "assistant")
        newest = list(islice(replies, max(least, 1)))
        return bool(newest) and (len(newest) >= least or any(map(acts, newest)))

    @cached_property
    def _memory(self) -> SessionMemory:
        return self._stage.sessions.of(
            self._exchange.request.session.hash, self._exchange.session_start
        )

    @cached_property
    def _history(self) -> History:
        """The turns of the request's transcript; without one, those that the session remembers."""
        exchange, memory = self._exchange, self._memory
        request, bytes_before = exchange.request, memory.bytes
        history = memory.read(request.blocks, request.failed, salient=self._stage.salient)
        self._stage.sessions.weigh(memory.bytes - bytes_before)
        if exchange.request.session.derived:
            if not history.turns:
                memory.start_over()
        else:
            # other dialects' clients always resend the transcript
            memory.has_transcript |= bool(history.turns) or request.dialect is not None
            if not memory.has_transcript and (turns := memory.turns_before(exchange.request.id)):
                history = history.after(turns)
        history.replies = detectors.replies_before(exchange, history.turns, self._rules)
        return history

    @cached_property
    def _task(self) -> TaskNotes:
        return self._memory.task(loop_model.task_of(self._history))

    @cached_property
    def _model_finding(self) -> Finding | None:
        """The loop model's finding in this task."""
        return self._task.finding if self._rules.judge.enabled else None

    def hold_whole(self) -> bool:
        """Whether to hold the whole reply: it may close a loop, and sent text can't be taken back.

        Every break by a reply with at most one call is foreseen.
        """
        if not self._follows or self._reports:
            return False
        return (
            self._model_finding is not None
            or detectors.could_break(self._history, self._rules)
            or self._question_calls() is not None
        )

    def on_request(self, request: UpstreamRequest) -> None:
        super().on_request(request)
        exchange = self._exchange
        if isinstance(doubt := exchange.second_opinion_on, LoopDetected):
            self._note_asked(doubt)
        if not self._follows or isinstance(exchange.model_failure, LoopDetected):
            return  # the retry after a break has that break's hint
        if self._rules.judge.enabled:
            self.remarks.inquiry = self._begin_inquiry()
        finding = self._note_hint()
        if finding is None or exchange.plain:
            return
        if "Loop" not in exchange.notes:
            self.remarks.notes["Loop"] = f"warning;detector={finding.detector}"
        if not self._reports:
            tier = self._stage.settings.tiers.get(request.tier)
            request.body["messages"] = own_words.place(
                request.body["messages"],
                finding.hint,
                placement=own_words.placement_on(tier, in_tool_result=exchange.hint_in_tool_result),
            )

    def judge(self, reply: Reply) -> LoopDetected | None:
        """Record the reply as a turn, and judge it; with ``on_break: stop`` remove the loop."""
        if not self._reports:
            self.drop_surplus(reply)
        doubt: LoopDetected | None = None
        for index, choice in sorted(reply.choices.items()):
            if not choice.tool_calls and not choice.text.strip():
                continue
            digest = detectors.reply_digest(choice, self._exchange, self._rules)
            self.remarks.reply_digest = digest.dumped() if digest is not None else ""
            if not choice.tool_calls and not self._follows:
                continue
            calls = [self._key_as_in_history(tool_call) for tool_call in choice.tool_calls]
            new_history = self._history.with_reply(choice.text, calls, digest)
            self._remember(choice, calls, new_history)
            second_opinion_on = self._exchange.second_opinion_on
            if isinstance(second_opinion_on, LoopDetected):  # whether the second tier agrees
                same = new_history.turns[-1].pattern == second_opinion_on.pattern
                answer = "same" if same else "other"
                self.remarks.incidents.append(Incident("loop_answer", (answer,)))
            if (finding := self._broken_by(new_history)) is None:
                doubt = self._doubt_about(choice, new_history) or doubt
            elif self._reports:
                self._break(choice, new_history, finding)
            elif second_opinion_on is not None:
                return finding.verdict()  # it failed, too: the first reply is delivered
            elif self._rules.on_break != "stop":
                return self._break(choice, new_history, finding)
            else:
                self.remarks.reply_notes["Loop"] = f"circuit_break;detector={finding.detector}"
                replace_by_notice(choice, finding)
                reply.mended.add(index)
                self._note_break(finding)
        if doubt is not None and self._reports:
            self._note_asked(doubt)
            return None
        return doubt

    # The hint, and the question to the loop model

    def _note_hint(self) -> Finding | None:
        """Record the first loop in the history. Return it if its hint is due."""
        finding = self._model_finding or next(detectors.findings(self._history, self._rules), None)
        if finding is None:
            return None
        is_first, is_due = self._memory.note_hint(finding, self._history)
        if is_first:
            self._note("loop_warning", finding.detector, "warning", finding.detail)
        return finding if is_due else None

    def _begin_inquiry(self) -> Inquiry | None:
        """Return a question to the loop model if one is due, and postpone the next one."""
        settings, rules = self._stage.settings, self._rules.judge
        history, task = self._history, self._task
        messages = self._exchange.request.body["messages"]
        if task.verdicts > 1 or not loop_model.is_due(history, task.next_look, rules):
            return None
        if all(message.get("role") != "assistant" for message in messages):
            return None

        def take(text: str | None) -> bool:
            answer = None if text is None else loop_model.read_answer(text)
            task.next_look = loop_model.next_look(history, answer)
            quotes = settings.observability.capture_failures
            finding = loop_model.to_finding(answer, history, rules, quotes=quotes)
            if finding is not None:
                task.finding, task.verdicts = finding, task.verdicts + 1
            return answer is not None

        take(None)  # until there is an answer, the next request does not ask
        tier = settings.tiers.get(rules.tier)
        reasons = tier is not None and tier.reasoning
        return Inquiry(rules.tier, loop_model.question(messages, rules, reasons=reasons), take)

    # The break

    def _key_as_in_history(self, call: Call) -> CallKey:
        """Return the call's key, with schema defaults if the history has them (Claude Code)."""
        if turns := self._history.turns:
            filled = call_keys.filled(call.name, call.arguments, self._exchange.request.tools)
            if filled is not None and any(filled in turn.calls for turn in turns):
                return filled
        return call_keys.read(call.name, call.arguments, salient=self._stage.salient)

    def _remember(self, choice: ChoiceReply, calls: list[CallKey], new_history: History) -> None:
        """Remember a reply, because its client may compact the transcript later, or send none."""
        exchange, memory, history = self._exchange, self._memory, self._history
        ids = [call.id for call in choice.tool_calls]
        calls_with_ids = zip(calls, ids, strict=True)
        memory.seen.replied(history.turns, history.pending, choice.text, calls_with_ids)
        if calls and not exchange.request.session.derived and not memory.has_transcript:
            memory.keep(exchange.request.id, new_history.turns[-1], self._rules.window_size)

    def _broken_by(self, new_history: History) -> Finding | None:
        if not self._follows:
            return None
        # A loop that may be a poll is broken once per exchange, if another tier follows.
        escalates = self._reports or self._rules.on_break == "escalate"
        uncertain = escalates and not isinstance(self._exchange.model_failure, LoopDetected)
        finding = detectors.breaks(new_history, self._rules, uncertain=uncertain)
        if finding is None and not loop_model.ends_task(new_history):
            finding = self._model_finding
        return finding

    def _break(self, choice: ChoiceReply, new_history: History, finding: Finding) -> LoopDetected:
        acts = bool(choice.tool_calls) or not finding.certain
        confirmable = finding.confirmable and acts and not self._is_exhausted(new_history, finding)
        confirmed = confirmable and not self._reports and self._memory.note_run(finding)
        action = "warning" if confirmed else "circuit_break"
        self.remarks.notes["Loop"] = f"{action};detector={finding.detector}"
        if not confirmed:
            self._note_break(finding)
        calls = [(call.name, call_keys.canonical(call.arguments)) for call in choice.tool_calls]
        return finding.verdict(
            confirmable=confirmable, confirmed=confirmed, calls=tuple(sorted(calls))
        )

    def _is_exhausted(self, new_history: History, finding: Finding) -> bool:
        """Whether the newest turn's calls were made too often for a second tier to confirm them."""
        if finding is self._model_finding:
            return self._task.verdicts > 1
        newest = new_history.turns[-1]
        names = [call.name for call in newest.calls]
        repeats = sum([turn.action == newest.action for turn in new_history.task])
        return finding.certain and repeats >= repetition.identical_hard(names, self._rules)

    def _doubt_about(self, choice: ChoiceReply, new_history: History) -> LoopDetected | None:
        """Return a doubt about a repeated call or a run without progress.

        Return None if another tier was asked about it.
        """
        notes, newest = self._memory.notes, new_history.turns[-1]
        argument_chars = sum([len(call.arguments) for call in choice.tool_calls])
        finding = repetition.repeated_call(DetectorView(new_history, self._rules), argument_chars)
        asks = self._exchange.second_opinion_on is None
        if finding is not None and (
            not asks or notes.find_and_refresh(finding.keys("question")) is None
        ):
            return finding.verdict(doubt=True, place=finding.run[-1])
        if not asks or not newest.acts or (calls := self._question_calls()) is None:
            return None
        place = self._history.turns[-1].place
        # Recorded here, so that a reply is held once even if no other tier can be asked.
        notes["question", NO_PROGRESS, place] = calls
        tool = next((call.name for call in newest.calls), "")
        question = Finding(NO_PROGRESS, calls, tool, newest.pattern, "", (place,))
        return question.verdict(doubt=True, place=place)

    def _question_calls(self) -> int | None:
        """Return how many calls have brought nothing new, if another tier is to be asked now."""
        run = list(detectors.without_news(DetectorView(self._history, self._rules)))
        if not run or run[-1][1] < self._rules.no_progress.ask:
            return None
        notes = self._memory.notes
        recent = [turn.place for turn, calls in run if calls <= ASK_AGAIN]
        asked = any(("question", NO_PROGRESS, place) in notes for place in recent)
        return None if asked else run[-1][1]

    def _note_asked(self, doubt: LoopDetected) -> None:
        self._memory.notes["question", doubt.detector, doubt.place] = doubt.repeats
        detail = {"repeats": doubt.repeats, "pattern": doubt.pattern}
        self._note("loop_warning", doubt.detector, "second_opinion", detail)
        self.remarks.reply_notes["Loop"] = f"warning;detector={doubt.detector}"

    def _note_break(self, finding: Finding) -> None:
        mark = {"again": True} if self._memory.note_break(finding) else {}
        self._note("loop_break", finding.detector, "circuit_break", finding.detail | mark)
        if finding is self._model_finding and self._task.verdicts <= 1:
            self._task.finding = None

    def _note(self, kind: str, detector: str, action: str, detail: dict[str, Any]) -> None:
        if self._reports:
            detail["reported"] = True
        self.remarks.incidents.append(Incident(kind, (detector, action), detail))


class _ReportingState(_LoopState):
    """With ``on_break: report``: records what would have been done; the reply goes on."""

    _reports = True
    _reported = False  # what would have ended the reply is recorded

    def watch(self, reply: Reply, delta: Delta) -> Verdict | None:
        if self._reported or (verdict := super().watch(reply, delta)) is None:
            return None
        self._reported = True
        remarks = self.remarks
        remarks.incidents = [one for one in remarks.incidents if one.kind != "tokens_saved"]
        if isinstance(verdict, Cut) and verdict.kind == REPEATED_CALLS:
            remarks.reply_notes["Loop"] = f"warning;detector={REPEATED_CALLS}"
            remarks.incidents.append(Incident("truncated", (REPEATED_CALLS,)))
        return None

    def mend(self, reply: Reply) -> None:
        """Nothing is removed."""
