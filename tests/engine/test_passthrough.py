"""What passes through: the paths that clients may call, and what a body asks for."""

from __future__ import annotations

import httpx
import orjson
import pytest

from mlx_stack_proxy.engine.passthrough_body import read
from mlx_stack_proxy.engine.passthrough_paths import check, pattern, serves_models
from mlx_stack_proxy.errors import ProxyError

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("kind", ["application/json", "", "text/plain", "application/json; form"])
def test_what_is_no_form_is_json(kind: str) -> None:
    body = b'{ "model": "m",  "input": "x" }'
    asked = read({"content-type": kind}, body)
    assert (asked.model, asked.patience) == ("m", None)
    assert asked.content is body, "nothing was taken out, so it goes as it came"


def test_the_last_of_two_models_counts() -> None:
    """So do orjson and Python's json, with which LiteLLM reads."""
    assert read(JSON, b'{"model": "local", "model": "cloud"}').model == "cloud"
    assert read(JSON, b'{"model": "local", "\\u006dodel": "cloud"}').model == "cloud"


@pytest.mark.parametrize("model", [None, 7, ["m"], {"m": 1}])
def test_a_model_that_is_no_name(model: object) -> None:
    assert read(JSON, orjson.dumps({"model": model})).model is None


def test_what_steers_is_taken_out() -> None:
    asked = read(JSON, b'{"model": "m", "timeout": 5, "api_base": "http://x", "input": "y"}')
    assert orjson.loads(asked.content) == {"model": "m", "input": "y"}
    assert asked.patience == 5


def test_half_a_character_is_sent_as_it_was_read() -> None:
    asked = read(JSON, b'{"model": "m", "input": "\\ud83d"}')
    assert orjson.loads(asked.content) == {"model": "m", "input": "\ufffd"}


@pytest.mark.parametrize("body", [b"[]", b"x", b'{"a": NaN}', b"\x1f\x8b\x08"])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(ProxyError) as raised:
        read(JSON, body)
    assert raised.value.status == 400


def test_a_form_that_nobody_uploads_is_refused() -> None:
    with pytest.raises(ProxyError) as raised:
        read({"content-type": "application/x-www-form-urlencoded"}, b"model=cloud")
    assert raised.value.status == 415


def form(data: dict[str, str | list[str]]) -> tuple[dict[str, str], bytes]:
    files = {"file": ("a.wav", b"\x00\x01", "audio/wav")}
    request = httpx.Request("POST", "http://x", data=data, files=files)
    return {"content-type": request.headers["content-type"]}, request.read()


def test_what_steers_is_taken_out_of_a_form() -> None:
    headers, body = form({"model": "whisper", "timeout": "2", "metadata": "{}", "language": "de"})
    asked = read(headers, body)
    assert asked.patience == 2
    again = read(headers, asked.content)
    assert (again.model, again.content, again.patience) == ("whisper", asked.content, None)
    assert b"timeout" not in asked.content and b"metadata" not in asked.content
    assert b"language" in asked.content and b"\x00\x01" in asked.content


def test_a_form_with_two_models_has_none() -> None:
    headers, body = form({"model": ["whisper", "cloud"]})
    assert read(headers, body).model is None


def test_nothing_asks_nothing() -> None:
    asked = read({"x-litellm-timeout": "3"}, b"")
    assert (asked.content, asked.model, asked.patience) == (b"", None, 3)


# Paths


@pytest.mark.parametrize(
    ("asked", "may"),
    [
        ("POST /v1/embeddings", True),
        ("POST /v1/messages/count_tokens", True),
        ("POST /v1/audio/transcriptions", True),
        ("POST /v1/images/edits", True),
        ("GET /v1/embeddings", False),
        ("POST /v1/Embeddings", False),
        ("POST /v1/embeddings/", False),
        ("POST /v1/embeddings2", False),
        ("POST /v1/audio/a/b", False),
        ("POST /v1/audio/", False),
        ("POST /v1/audio/a%2fb", False),
        ("POST /v1/mcp/server", False),
        ("POST /v1/responses/resp_1", False),
        ("PUT /v1/responses", False),
    ],
)
def test_what_serves_models(asked: str, may: bool) -> None:
    method, _, path = asked.partition(" ")
    assert serves_models(method, path) == may
    assert not pattern(()).fullmatch(asked)


def test_what_the_operator_opens() -> None:
    paths = pattern(("GET /v1/files", "GET /v1/files/{id}/content", "POST /v1/a.b"))
    for opened in ("GET /v1/files", "GET /v1/files/file-1/content", "POST /v1/a.b"):
        assert paths.fullmatch(opened)
    for other in (
        "POST /v1/files",
        "GET /v1/files/file-1",
        "GET /v1/files/a/b/content",
        "GET /v1/files/%2e%2e/content",
        "POST /v1/axb",
    ):
        assert not paths.fullmatch(other)
    assert not serves_models("GET", "/v1/files")


@pytest.mark.parametrize("path", ["/v1/a%2Fb", "/v1/a%2fb", "/v1/a%5Cb", "/v1//a", "/v1/a//"])
def test_what_two_servers_could_read_differently_is_refused(path: str) -> None:
    with pytest.raises(ProxyError):
        check(path)


def test_a_query_may_hold_anything() -> None:
    check("/v1/files?after=a//b%2Fc")


def test_a_form_of_many_controls_is_one_pass() -> None:
    """Each is taken out; what is left is the body without them, byte for byte."""

    def part(name: str, value: str = "x") -> bytes:
        head = f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
        return head.encode() + value.encode() + b"\r\n"

    controls = part("tags") * 200
    kept = [part("model", "whisper"), part("prompt"), part("file", "y" * 1000)]
    body = controls.join([b"", *kept, b"--b--\r\n"])
    asked = read({"content-type": "multipart/form-data; boundary=b"}, body)
    assert asked.content == b"".join(kept) + b"--b--\r\n"
    assert asked.model == "whisper"
