"""What is captured of a failure: no key, a bounded private file, and no line spoilt."""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlx_stack_proxy.engine.outcome import Figures, Outcome
from mlx_stack_proxy.engine.verdicts import Failure
from mlx_stack_proxy.telemetry import failure_capture
from mlx_stack_proxy.telemetry.failure_capture import FILE, OLD_FILE, FailureCapture
from tests.engine.exchanges import attempt, client_request, exchange

Json = dict[str, Any]
SECRET = "master-key-0123456789"
FAILED = Failure("refused", "what?", status=400, fault="client")


class Capturing:
    """Captures into a folder, and reads what is in it. ``faults``: what was reported."""

    def __init__(self, folder: Path, most: int = 1_000_000) -> None:
        self.folder = folder
        self.file = folder / FILE
        self.faults: list[str] = []
        self.capture = FailureCapture(str(folder), most, [SECRET], self.faults.append)

    async def fails(
        self, *reply: bytes, number: int = 0, owner: str = "", **asked: Any
    ) -> list[Json]:
        """Capture an exchange that upstream refused with these bytes; all records so far."""
        whole = exchange(client_request(**asked), owner=owner, id=f"req-{number}")
        tape = self.capture.of(whole)
        head = [(b"content-type", b"application/json"), (b"set-cookie", b"a=1")]

        def tap(take: Any) -> None:
            for piece in reply:
                take(piece)

        def header(name: bytes) -> bytes:
            return dict(head).get(name, b"")

        tape.call_begins(attempt(whole).request, [])
        answer = SimpleNamespace(status=400, headers=head, header=header, tap=tap)
        tape.answered(answer)  # type: ignore[arg-type]
        whole.outcomes.append(
            Outcome(whole.tier, FAILED, "server_error", figures=Figures(status=400))
        )
        self.capture.start()
        tape.ended("client_error")
        await self.capture.close()
        return self.records()

    def records(self, name: str = FILE) -> list[Json]:
        file = self.folder / name
        return (
            [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []
        )


@pytest.fixture
def capturing(tmp_path: Path) -> Capturing:
    return Capturing(tmp_path / "private" / "failures")


KEYS = (
    "sk-proj-0123456789abcdefXYZ",
    "hf_" + "aB3" * 11,
    "ghp_" + "aB3" * 12,
    "github_pat_" + "aB3" * 12,
    "xoxb-" + "123-" * 8,
    "AKIAIOSFODNN7EXAMPLE",
    "AIza" + "Sy-ab" * 7,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijkl",
)


async def test_what_looks_like_a_key_is_taken_out_of_what_was_said(capturing: Capturing) -> None:
    pem = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIB\n" * 20 + "-----END PRIVATE KEY-----"
    said = f"My .env: {' '.join(f'A={key}' for key in KEYS)} {pem} a skeleton-key-of-a-quokka"
    (record,) = await capturing.fails(b"no", messages=[{"role": "user", "content": said}])
    kept = record["request"]["messages"][0]["content"]
    assert not [key for key in (*KEYS, "MIIEvQIB") if key in capturing.file.read_text()]
    assert kept.count("[key removed]") == len(KEYS) + 1
    assert kept.endswith("[key removed]-----END PRIVATE KEY----- a skeleton-key-of-a-quokka")


async def test_keys_that_are_known_are_taken_out_of_the_reply(capturing: Capturing) -> None:
    reply = f"what? {SECRET} the-clients-own local".encode()
    (record,) = await capturing.fails(reply, owner="the-clients-own")
    assert record["reply"]["body"] == "what? [key removed] [key removed] local"
    assert record["reply"]["headers"] == {"content-type": "application/json"}
    (_, record) = await capturing.fails(b"\xff sk-0123456789abcdefXYZ")
    assert base64.b64decode(record["reply"]["body_base64"]) == b"\xff [key removed]"


async def test_fields_that_hold_keys_are_left_out_but_not_of_what_was_said(
    capturing: Capturing,
) -> None:
    """A tool's argument of that name is needed: else the call is replayed to another verdict."""
    model = {"model": "m", "api_key": "hidden"}
    tool = {"type": "function", "function": {"name": "login", "parameters": {"password": {}}}}
    (record,) = await capturing.fails(
        b"no",
        api_key="hidden",
        extra_headers={"a": "hidden"},
        user_config={"model_list": [{"litellm_params": model}]},
        metadata={"tags": ["a"], "auth_token": "hidden"},
        tools=[tool],
    )
    assert record["request"].pop("messages")
    assert record["request"] == {
        "user_config": {"model_list": [{"litellm_params": {"model": "m"}}]},
        "metadata": {"tags": ["a"]},
        "tools": [tool],
    }


async def test_a_long_reply_is_cut_off(
    capturing: Capturing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_capture, "MAX_RAW", 10)
    (record,) = await capturing.fails(b"ten bytes!")
    assert (record["reply"]["body"], record["reply"].get("cut_off")) == ("ten bytes!", None)
    (_, record) = await capturing.fails(b"nine more", b"12", b"3")
    assert (record["reply"]["body"], record["reply"]["cut_off"]) == ("nine more", True)


# Its files


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_only_this_user_may_read_it(capturing: Capturing) -> None:
    await capturing.fails(b"no")
    assert (mode(capturing.folder), mode(capturing.file)) == (0o700, 0o600)


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o700), (0o777, 0o700), (0o1777, 0o1777)])
async def test_a_folder_that_is_there_is_made_private(
    before: int, after: int, capturing: Capturing
) -> None:
    """But for one that many use, as /tmp with its sticky bit: the file in it is private."""
    capturing.folder.mkdir(parents=True)
    capturing.folder.chmod(before)
    assert await capturing.fails(b"{}")
    assert stat.S_IMODE(capturing.folder.stat().st_mode) == after
    assert stat.S_IMODE(capturing.file.stat().st_mode) == 0o600
    capturing.file.chmod(0o644)
    await capturing.fails(b"no")
    assert mode(capturing.file) == 0o600


async def test_a_disk_that_fills_up_spoils_no_line(
    capturing: Capturing, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await capturing.fails(b"no", number=1)
    write, room = os.write, [100, 0]

    def little(file: int, data: Any) -> int:
        if not (most := room.pop(0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:most])

    monkeypatch.setattr(os, "write", little)
    assert await capturing.fails(b"no", number=2) == first
    assert capturing.faults == ["capture"]
    monkeypatch.undo()
    again = await capturing.fails(b"no", number=3)
    assert [one["request_id"] for one in again] == ["req-1", "req-3"]


async def test_files_are_bounded_and_the_oldest_go(tmp_path: Path) -> None:
    capturing = Capturing(tmp_path, 10_000)
    for number in range(40):
        await capturing.fails(b"no", number=number)
    assert sorted(os.listdir(tmp_path)) == sorted([OLD_FILE, FILE])
    assert all(0 < (tmp_path / name).stat().st_size <= 5_000 for name in (OLD_FILE, FILE))
    kept = [one["request_id"] for name in (OLD_FILE, FILE) for one in capturing.records(name)]
    newest = [f"req-{number}" for number in range(40 - len(kept), 40)]
    assert kept == newest, "in order, none missing"
    await capturing.fails(b"x" * 6_000, number=40)
    assert capturing.faults == ["capture"], "it alone is more than a file may hold"


async def test_a_link_is_not_followed(capturing: Capturing, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text('{"as": "it was"}')
    capturing.folder.mkdir(parents=True)
    capturing.file.symlink_to(target)
    assert await capturing.fails(b"no") == [{"as": "it was"}]
    assert capturing.faults == ["capture"]
