"""The pictures of the documentation: `python -m scripts.pictures` draws them anew.

docs/pictures/*.svg are kept in the repository, so that a page needs no program and no other server
to be looked at. A test holds both together, and the names in them to the code.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

from . import module_graph
from .drawing import Badge, Drawing

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"


def flow() -> Drawing:
    """README: where the proxy stands."""
    d = Drawing("An agent asks the proxy, the proxy asks LiteLLM, which has the tiers", 900, 186)
    d.box((15, 53, 115, 80), "your agent\nany framework")
    d.box(
        (245, 33, 195, 120),
        "reliability proxy :4100\nchecks, repairs, retries\nbreaks loops\nescalates",
        "ours",
    )
    d.box((540, 53, 95, 80), "LiteLLM\n:4000")
    d.arrow((130, 80), (245, 80))
    d.note(187, 72, "request")
    d.arrow((245, 106), (130, 106))
    d.note(187, 122, "a good reply or\none honest error")
    d.arrow((440, 80), (540, 80))
    d.note(490, 72, "attempts")
    d.arrow((540, 106), (440, 106))
    d.note(490, 122, "watched as\nit is written")
    tiers = ("fast", "standard", "longctx")
    places = [*(f"{tier}: mlx_lm.server" for tier in tiers), "premium: the cloud"]
    for number, text in enumerate(places):
        y = 13 + number * 42
        d.box((690, y, 195, 34), text)
        d.arrow((635, 93), (662, 93), (662, y + 17), (690, y + 17))
    return d


def request() -> Drawing:
    """architecture.md: the way of a request."""
    d = Drawing("The way of a request through the modules", 860, 640)
    d.note(150, 26, "HTTP edge: app/mlx_stack_proxy/server")
    d.note(430, 26, "async shell: app/mlx_stack_proxy/driver")
    d.note(725, 26, "decisions, no I/O")
    left, middle, right = 20, 300, 590

    def row(x: int, y: int, text: str, kind: str = "plain") -> None:
        d.box((x, y, 260, 46), text, kind)

    row(left, 40, "edge.py\norigin, path, which way")
    row(left, 116, "incoming.py, access.py\nheaders, body, keys")
    row(left, 192, "chat_completions.py\nparse, session, route")
    d.arrow((150, 86), (150, 116))
    d.arrow((150, 162), (150, 192))
    row(right, 116, "client_request.py, session_id.py\nwhat is asked, and by whom")
    row(right, 192, "tiers.py\nwhich tiers it may go to")
    d.arrow((280, 204), (572, 204), (572, 139), (590, 139), dashed=True)
    d.arrow((280, 222), (590, 222), dashed=True)
    row(middle, 268, "driver.py, calls.py\nthe only attempt loop")
    d.arrow((150, 238), (150, 291), (300, 291))
    row(right, 268, "ladder.py, breaker.py\nwhere to start, who is left out", "ours")
    d.arrow((560, 291), (590, 291), dashed=True)
    row(middle, 344, "books.py, tier_queue.py\nbudget set aside, a place")
    d.arrow((430, 314), (430, 344))
    row(right, 344, "budgets.py, tier_queue.py\nis there room, whose turn")
    d.arrow((560, 367), (590, 367), dashed=True)
    row(middle, 420, "upstream.py\nthe call to LiteLLM, a stream")
    d.arrow((430, 390), (430, 420))
    row(right, 420, "sse.py, chunks.py, attempt.py\nbytes to deltas")
    d.arrow((560, 443), (590, 443), dashed=True)
    row(right, 496, "pipeline.py, the stages, gate.py\nwhat is wrong, what may flow", "ours")
    d.arrow((720, 466), (720, 496))
    row(right, 572, "next_step.py\ndeliver, retry, move on, fail", "ours")
    d.arrow((720, 542), (720, 572))
    d.arrow((590, 602), (575, 602), (575, 327), (500, 327), (500, 314))
    row(middle, 496, "answer.py, downstream.py\nbytes to the client")
    d.arrow((590, 519), (560, 519))
    row(middle, 572, "accounts.py, state/\ncounted, logged, kept")
    d.arrow((430, 542), (430, 572))
    d.note(
        150,
        420,
        "whole line: where it goes next\ndashed: who is asked\nblue: where decisions are made",
    )
    return d


def attempt() -> Drawing:
    """escalation.md: what follows an attempt."""
    d = Drawing("What follows an attempt: delivery, a retry, another tier, or an error", 860, 300)
    d.box((20, 120, 110, 50), "start tier")
    d.box((230, 120, 130, 50), "attempt", "ours")
    d.arrow((130, 145), (230, 145))
    d.box((640, 20, 200, 44), "delivered", "good")
    d.arrow((295, 120), (295, 42), (640, 42))
    d.note(470, 35, "nothing is wrong")
    d.box((640, 90, 200, 44), "passed on as it came")
    d.arrow((360, 132), (500, 132), (500, 112), (640, 112))
    d.note(570, 105, "the client's own fault")
    d.box((640, 160, 200, 44), "error", "bad")
    d.arrow((360, 156), (500, 156), (500, 182), (640, 182))
    d.note(570, 175, "no tier, no call left")
    d.note(570, 199, "or text is out")
    d.box((60, 232, 190, 50), "same tier\nback-off, correction, hint")
    d.box((400, 232, 190, 50), "next tier\nforward only")
    d.arrow((260, 170), (260, 200), (180, 200), (180, 232))
    d.arrow((120, 232), (120, 185), (242, 185), (242, 170))
    d.note(110, 215, "a retry may help", anchor="end")
    d.arrow((335, 170), (335, 200), (450, 200), (450, 232))
    d.arrow((400, 262), (310, 262), (310, 170))
    d.note(460, 223, "retries used up, or no use", anchor="start")
    return d


def breaker() -> Drawing:
    """escalation.md: the breaker of a tier."""
    d = Drawing("The breaker of a tier: whole, degraded, probing", 860, 180)
    d.box((20, 65, 170, 50), "whole\nserves everybody", "good")
    d.box((370, 65, 170, 50), "degraded\ngone past", "bad")
    d.box((680, 65, 160, 50), "probing\none request", "ours")
    d.arrow((190, 80), (370, 80))
    d.note(280, 58, "5 server errors or\ntimeouts in a row")
    d.arrow((540, 80), (680, 80))
    d.note(610, 43, "30 s are over, or its\nserver is back:\na request comes")
    d.arrow((680, 102), (540, 102))
    d.note(610, 120, "it fails: twice as long,\nup to 10 min; its client\nleaves: the next probes")
    d.arrow((760, 65), (760, 22), (105, 22), (105, 65))
    d.note(430, 16, "it gets a reply")
    d.note(105, 135, "any reply, good or bad,\nstarts the count anew")
    return d


def memory() -> Drawing:
    """memory-pressure.md: the levels."""
    d = Drawing("The levels of memory pressure, and what each does", 860, 170)
    d.box((20, 60, 190, 62), "normal\nnothing is done", "good")
    d.box(
        (320, 60, 220, 62), "warning\na header; after 60 s\ncomplex requests go elsewhere", "ours"
    )
    d.box((650, 60, 190, 62), "critical\nalso: one local\nrequest at a time", "bad")
    d.arrow((210, 80), (320, 80))
    d.note(265, 72, "a reading")
    d.arrow((320, 104), (210, 104))
    d.note(265, 120, "30 s without\nsuch a reading")
    d.arrow((540, 80), (650, 80))
    d.note(595, 72, "a reading")
    d.arrow((650, 104), (540, 104))
    d.note(595, 120, "30 s without\nsuch a reading")
    d.arrow((115, 60), (115, 28), (745, 28), (745, 60))
    d.note(430, 22, "a reading")
    return d


def modules() -> Drawing:
    """docs/architecture.md: which parts of the package import which."""
    d = Drawing("Which parts of the package import which", 860, 740)
    width, height = 230, 48
    places = {
        "operator": (20, 20, "operator\nup, init, check, service, replay …"),
        "main": (315, 20, "main.py, stages.py\nall wiring, the five stages"),
        "litellm": (610, 20, "litellm\nthe same inside LiteLLM"),
        "server": (315, 120, "server\nthe HTTP edge"),
        "driver": (315, 220, "driver\nruns an exchange; what follows"),
        "loop_detection": (20, 320, "loop_detection\nacross turns, while writing"),
        "tool_validation": (20, 420, "tool_validation\nformats, repair, schemas"),
        "token_budget": (315, 320, "token_budget\nlimits, set-asides, the hour"),
        "escalation": (315, 420, "escalation\ntiers, ladder, breaker, queue"),
        "memory_pressure": (610, 320, "memory_pressure\nprobe, levels"),
        "telemetry": (610, 420, "telemetry\nmetrics, events, traces"),
        "state": (610, 520, "state\nsessions, budgets, events"),
        "engine": (315, 520, "engine\none exchange as data, an attempt"),
        "wire": (315, 620, "wire\nbytes and what they mean"),
        "basics": (610, 620, "settings, errors, log …\nimported by all"),
    }
    rooms = ("loop_detection", "tool_validation", "token_budget", "escalation", "memory_pressure")
    for name, (x, y, text) in places.items():
        kind = "ours" if name in (*rooms, "engine", "wire") else "plain"
        d.box((x, y, width, height), text, kind)
    counted = module_graph.imports()
    arrows = {
        ("operator", "main"): ((250, 44), (315, 44)),
        ("litellm", "main"): ((610, 44), (545, 44)),
        ("main", "server"): ((430, 68), (430, 120)),
        ("server", "driver"): ((430, 168), (430, 220)),
        ("driver", "loop_detection"): ((315, 252), (135, 252), (135, 320)),
        ("driver", "token_budget"): ((430, 268), (430, 320)),
        ("driver", "memory_pressure"): ((545, 252), (725, 252), (725, 320)),
        ("loop_detection", "tool_validation"): ((135, 368), (135, 420)),
        ("escalation", "engine"): ((430, 468), (430, 520)),
        ("telemetry", "state"): ((725, 468), (725, 520)),
        ("engine", "wire"): ((430, 568), (430, 620)),
    }
    for edge, points in arrows.items():
        if counted[edge]:
            d.arrow(*points)
    d.note(
        20,
        690,
        "blue: decisions on plain data; a few of their files wait or ask\nimports go downwards",
        anchor="start",
    )
    return d


def _project(key: str) -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][key])


def licence() -> Badge:
    """README: the licence, as pyproject.toml has it."""
    return Badge("license", _project("license"))


def python() -> Badge:
    """README: the versions of Python, as pyproject.toml has them."""
    return Badge("python", _project("requires-python").replace(">=", "≥ "))


DRAWINGS: dict[str, Callable[[], Drawing | Badge]] = {
    "licence": licence,
    "python": python,
    "flow": flow,
    "request": request,
    "attempt": attempt,
    "breaker": breaker,
    "memory": memory,
    "modules": modules,
}


def main() -> None:
    """Write them all."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
