"""The stage: it gives the model a hint when an agent goes in circles, and breaks the loop.

Across turns it reads the history from the request's messages, and the detectors look for loops: in
the history, for the hint, and again with the reply as the newest turn, for the break. Within a
reply a :class:`ReplyWatch` sees every frame. History alone never refuses a request: the model is
asked, with the hint, and its reply is judged.
"""

from __future__ import annotations

from typing import Any, Final

from ..engine import own_words
from ..engine.exchange import Exchange
from ..engine.gate import TextHold
from ..engine.outcome import Incident, Inquiry
from ..engine.pipeline import Stage, StageState
from ..engine.request import MOST_NAME, UpstreamRequest
from ..engine.verdicts import Cut, LoopDetected, Verdict
from ..settings import Settings
from ..wire.call import Call
from ..wire.delta import Delta
from ..wire.reply import ChoiceReply, Reply
from . import call_keys, detectors, loop_model, specified
from .call_keys import CallKey
from .finding import Finding, replace_by_notice, verdict_of
from .generation.reply_watch import REPEATED_CALLS, ReplyWatch
from .history import MAX_SESSIONS, History, HistoryReader
from .memory import LoopMemory, SessionMemory

NO_PROGRESS: Final = "no_progress"
ASK_AGAIN: Final = 50  # calls of a run without progress between two questions


class LoopDetection(Stage):
    """The stage: its rules, and the memory of all sessions."""

    name = "loop_detection"
    bypass = "loop"

    def __init__(self, settings: Settings) -> None:
        self.rules = settings.reliability.loop_detection
        self.tiers = settings.tiers
        self._model_rules = self.rules.judge
        self._model_tier = settings.tiers.get(self._model_rules.tier)
        self._may_quote = settings.observability.capture_failures
        self._settings = settings
        most = self.rules.max_tracked_threads
        self.reader = HistoryReader(most or MAX_SESSIONS)
        self._sessions = LoopMemory(most or self.rules.max_sessions)

    def continue_from(self, predecessor: Stage) -> None:
        """Take over the memory of the stage that ran with earlier settings."""
        assert isinstance(predecessor, LoopDetection)
        self.reader, self._sessions = predecessor.reader, predecessor._sessions

    def open(self, exchange: Exchange) -> StageState:
        return _LoopState(self, exchange, ReplyWatch(exchange, self._settings))

    def forget(self, session: str | None) -> None:
        """Forget a session by its hash; None: forget all sessions."""
        self.reader.forget(session)
        self._sessions.forget(session)

    def remembered(self, exchange: Exchange) -> SessionMemory:
        return self._sessions.get(exchange.session.hash, exchange.began)

    def read_history(self, exchange: Exchange) -> History:
        """Read the request's messages; without a transcript take the session's remembered turns."""
        session = exchange.session
        request = exchange.request
        history = self.reader.read(session.hash, request.blocks, request.failed)
        if session.derived:
            if not history.turns:  # the same script runs again
                self._sessions.forget(session.hash)
            return history
        remembered = self.remembered(exchange)
        # Clients of other dialects always resend the transcript: a first request again is a retry.
        if history.turns or exchange.request.dialect is not None:
            remembered.has_transcript = True
        if remembered.has_transcript or not (turns := remembered.turns_before(exchange.id)):
            return history
        return history.after(turns)

    def begin_inquiry(self, exchange: Exchange, history: History) -> Inquiry | None:
        """Return a question to the loop model if one is due, and put the next one off."""
        rules = self._model_rules
        messages = exchange.request.body["messages"]
        if not rules.enabled or all(one.get("role") != "assistant" for one in messages):
            return None
        remembered = self.remembered(exchange)
        task = loop_model.task_of(history)
        due = loop_model.is_due(history, remembered.next_looks.get(task), rules)
        if remembered.is_proven(task) or not due:
            return None

        def take(text: str | None) -> bool:
            answer = None if text is None else loop_model.read_answer(text)
            remembered.next_looks[task] = loop_model.next_look(history, answer)
            finding = loop_model.to_finding(answer, history, rules, quotes=self._may_quote)
            if finding is not None:
                remembered.model_findings[task] = finding
                remembered.verdicts[task] = remembered.verdicts.get(task, 0) + 1
            return answer is not None

        take(None)  # the next request does not ask meanwhile
        reasons = self._model_tier is not None and self._model_tier.reasoning
        body = loop_model.question(messages, rules, reasons=reasons)
        return Inquiry(rules.tier, body, take)


class _LoopState(StageState):
    def __init__(self, stage: LoopDetection, exchange: Exchange, watch: ReplyWatch) -> None:
        self._watch = watch
        self.remarks = watch.remarks
        self._reported = False  # `on_break: report` has noted what would have ended the reply
        self._stage = stage
        self._rules = stage.rules
        self._exchange = exchange
        self._history = stage.read_history(exchange)
        self._history.replies = specified.replies_before(exchange, self._history, self._rules)
        self._reports = self._rules.on_break == "report"
        self._model_finding: Finding | None = None  # what the loop model has found in this task
        if self._rules.judge.enabled:
            found = stage.remembered(exchange).model_findings
            self._model_finding = found.get(loop_model.task_of(self._history))

    def hold_whole(self) -> bool:
        """Whether to hold the whole reply: it may close a loop, and sent text can't be taken back.

        Every break by a reply with one call at most is foreseen.
        """
        if not self._knows_turns or self._reports:
            return False
        return (
            self._model_finding is not None
            or detectors.could_break(self._history, self._rules)
            or self._question_calls() is not None
        )

    def text_hold(self) -> TextHold:
        return self._watch.text_hold

    @property
    def _knows_turns(self) -> bool:
        return bool(self._history.turns or self._history.replies)

    def on_request(self, request: UpstreamRequest) -> None:
        self._watch.on_request(request)
        exchange = self._exchange
        if isinstance(doubt := exchange.second_opinion_on, LoopDetected):
            self._note_asked(doubt)
        if not self._knows_turns or isinstance(exchange.model_failure, LoopDetected):
            return  # the retry after a break has that break's hint
        self.remarks.inquiry = self._stage.begin_inquiry(exchange, self._history)
        finding = self._note_hint()
        if finding is None or exchange.plain:
            return
        tier = self._stage.tiers.get(request.tier)
        if "Loop" not in self._exchange.notes:
            self.remarks.notes["Loop"] = f"warning;detector={finding.detector}"
        if self._reports:
            return
        request.body["messages"] = own_words.place(
            request.body["messages"],
            finding.hint,
            placement=own_words.placement_on(tier, in_tool_result=exchange.hint_in_tool_result),
        )

    def watch(self, reply: Reply, delta: Delta) -> Verdict | None:
        if self._reports:
            self._report(reply, delta)
            return None
        return self._watch.watch(reply, delta)

    def _report(self, reply: Reply, delta: Delta) -> None:
        """Note what would have ended the reply here, once; the reply goes on as it is."""
        if self._reported or (verdict := self._watch.watch(reply, delta)) is None:
            return
        self._reported = True
        remarks = self.remarks
        remarks.incidents = [one for one in remarks.incidents if one.kind != "tokens_saved"]
        if isinstance(verdict, Cut) and verdict.kind == REPEATED_CALLS:
            remarks.reply_notes["Loop"] = f"warning;detector={REPEATED_CALLS}"
            remarks.incidents.append(Incident("truncated", (REPEATED_CALLS,)))

    def mend(self, reply: Reply) -> None:
        if not self._reports:
            self._watch.mend(reply)

    def judge(self, reply: Reply) -> LoopDetected | None:
        """Record the reply as a turn, and judge it; with ``on_break: stop`` take the loop out."""
        if not self._reports:
            self._watch.drop_surplus(reply)
        doubt: LoopDetected | None = None
        is_second_opinion = self._exchange.second_opinion_on is not None
        for index, choice in sorted(reply.choices.items()):
            if not choice.tool_calls and not choice.text.strip():
                continue
            new_history = self._record_reply(choice)
            self._note_answer(new_history)
            if (finding := self._broken_by(new_history)) is None:
                doubt = self._doubt_about(choice, new_history) or doubt
            elif self._reports:
                self._break(choice, new_history, finding)
            elif is_second_opinion:  # the second opinion failed: the first reply is delivered
                return verdict_of(finding)
            elif self._rules.on_break != "stop":
                return self._break(choice, new_history, finding)
            else:
                self._take_out(reply, index, finding)
        if doubt is not None and self._reports:
            self._note_asked(doubt)
            return None
        return doubt

    @property
    def _mode(self) -> dict[str, Any]:
        return {"reported": True} if self._reports else {}

    # The hint

    def _note_hint(self) -> Finding | None:
        """Note the first loop in the history. Return it if its hint is due."""
        finding = self._model_finding
        finding = finding or next(detectors.findings(self._history, self._rules), None)
        if finding is None:
            return None
        remembered = self._stage.remembered(self._exchange)
        is_first, is_due = remembered.note_hint(finding, self._history)
        if is_first:
            self._note("loop_warning", finding, "warning")
        return finding if is_due else None

    # The break

    def _record_reply(self, choice: ChoiceReply) -> History:
        """Remember a reply, and return the history with this reply as its newest turn."""
        exchange = self._exchange
        calls = [self._as_in_history(tool_call) for tool_call in choice.tool_calls]
        calls_with_ids = [
            (call, tool_call.id) for call, tool_call in zip(calls, choice.tool_calls, strict=True)
        ]
        self._stage.reader.replied(
            exchange.session.hash, self._history, choice.text, calls_with_ids
        )
        digest = specified.reply_digest(choice, exchange, self._rules)
        self.remarks.reply_digest = digest.dumped() if digest is not None else ""
        new_history = self._history.closed_by(choice.text, calls, digest)
        if calls and not exchange.session.derived:
            remembered = self._stage.remembered(exchange)
            if not remembered.has_transcript:  # its client will not send this turn again
                remembered.keep(exchange.id, new_history.turns[-1], self._rules.window_size)
        return new_history

    def _as_in_history(self, call: Call) -> CallKey:
        """Return the call, with its schema's defaults if the history has it so (Claude Code)."""
        filled = call_keys.filled(call.name, call.arguments, self._exchange.request.tools)
        if filled is not None and any(filled in turn.calls for turn in self._history.turns):
            return filled
        return call_keys.read(call.name, call.arguments)

    def _broken_by(self, new_history: History) -> Finding | None:
        if not self._knows_turns:
            return None
        # A loop that may be a poll is broken once an exchange, if a next tier follows.
        escalates = self._reports or self._rules.on_break == "escalate"
        uncertain = escalates and not isinstance(self._exchange.model_failure, LoopDetected)
        finding = detectors.breaks(new_history, self._rules, uncertain=uncertain)
        if finding is None and not loop_model.ends_it(new_history):
            finding = self._model_finding
        return finding

    def _break(self, choice: ChoiceReply, new_history: History, finding: Finding) -> LoopDetected:
        remembered = self._stage.remembered(self._exchange)
        acts = bool(choice.tool_calls) or not finding.certain
        exhausted = self._is_exhausted(new_history, finding)
        confirmable = finding.confirmable and acts and not exhausted
        confirmed = confirmable and not self._reports and remembered.note_run(finding)
        if confirmed:
            self.remarks.notes["Loop"] = f"warning;detector={finding.detector}"
        else:
            self._note_break(finding)
            self.remarks.notes["Loop"] = f"circuit_break;detector={finding.detector}"
        calls = [(call.name, call_keys.canonical(call.arguments)) for call in choice.tool_calls]
        return verdict_of(
            finding, confirmable=confirmable, confirmed=confirmed, calls=tuple(sorted(calls))
        )

    def _is_exhausted(self, new_history: History, finding: Finding) -> bool:
        """Whether the newest turn's calls were made too often for a second tier to confirm them."""
        if finding is self._model_finding:
            task = loop_model.task_of(self._history)
            return self._stage.remembered(self._exchange).is_proven(task)
        newest = new_history.turns[-1]
        names = [call.name for call in newest.calls]
        repeats = sum([turn.action == newest.action for turn in new_history.task])
        return finding.certain and repeats >= detectors.identical_hard(names, self._rules)

    def _doubt_about(self, choice: ChoiceReply, new_history: History) -> LoopDetected | None:
        """Return a doubt about a call made again, or about a run without progress.

        Return None if another tier was asked about it.
        """
        argument_chars = sum([len(call.arguments) for call in choice.tool_calls])
        finding = detectors.second_opinion(new_history, argument_chars, self._rules)
        asks = self._exchange.second_opinion_on is None
        if finding is not None:
            run = [(finding.detector, place) for place in finding.run]
            asked = self._stage.remembered(self._exchange).asked
            if not asks or asked.find_and_refresh(run) is None:
                return verdict_of(finding, doubt=True, place=finding.run[-1])
        if not asks or not new_history.turns[-1].acts or (calls := self._question_calls()) is None:
            return None
        place = self._history.turns[-1].place
        # Noted here, so that a reply is held once even if no other tier can be asked.
        self._stage.remembered(self._exchange).asked[NO_PROGRESS, place] = calls
        tool = next((call.name for call in new_history.turns[-1].calls), "")
        pattern = f"{new_history.turns[-1].action:016x}"
        question = Finding(NO_PROGRESS, calls, tool, pattern, "", (place,))
        return verdict_of(question, doubt=True, place=place)

    def _question_calls(self) -> int | None:
        """Return how many calls have brought nothing new, if another tier is to be asked now."""
        run = list(specified.without_news(self._history, self._rules))
        if not run or run[-1][1] < self._rules.no_progress.ask:
            return None
        asked = self._stage.remembered(self._exchange).asked
        recent = [turn.place for turn, calls in run if calls <= ASK_AGAIN]
        return None if any((NO_PROGRESS, place) in asked for place in recent) else run[-1][1]

    def _note_asked(self, doubt: LoopDetected) -> None:
        self._stage.remembered(self._exchange).asked[doubt.detector, doubt.place] = doubt.repeats
        detail = {"repeats": doubt.repeats, "pattern": doubt.pattern, **self._mode}
        labels = doubt.detector, "second_opinion"
        self.remarks.incidents.append(Incident("loop_warning", labels, detail))
        self.remarks.reply_notes["Loop"] = f"warning;detector={doubt.detector}"

    def _note_answer(self, new_history: History) -> None:
        """Note whether the tier that was asked about a repetition does the same."""
        doubt = self._exchange.second_opinion_on
        if isinstance(doubt, LoopDetected):
            same = f"{new_history.turns[-1].action:016x}" == doubt.pattern
            self.remarks.incidents.append(Incident("loop_answer", ("same" if same else "other",)))

    def _take_out(self, reply: Reply, index: int, finding: Finding) -> None:
        self.remarks.reply_notes["Loop"] = f"circuit_break;detector={finding.detector}"
        replace_by_notice(reply.choices[index], finding)
        reply.mended.add(index)
        self._note_break(finding)

    def _note_break(self, finding: Finding) -> None:
        remembered = self._stage.remembered(self._exchange)
        mark = {"again": True} if remembered.note_break(finding) else {}
        self._note("loop_break", finding, "circuit_break", **mark)
        task = loop_model.task_of(self._history)
        if finding is self._model_finding and not remembered.is_proven(task):
            remembered.model_findings.pop(task, None)

    def _note(self, kind: str, finding: Finding, action: str, **mark: bool) -> None:
        detail = {
            "repeats": finding.repeats,
            "tool": finding.tool[:MOST_NAME],
            "pattern": finding.pattern,
        }
        detail |= self._mode | mark
        if finding.confidence is not None:
            detail["confidence"] = finding.confidence
        if finding.reasoning:
            detail["reasoning"] = finding.reasoning
        self.remarks.incidents.append(Incident(kind, (finding.detector, action), detail))
