"""Forms are read strictly: what could be read in two ways is refused."""

from __future__ import annotations

import httpx
import pytest

from mlx_stack_proxy.wire.forms import MAX_FIELDS, BadForm, Field, fields_of

TYPE = "multipart/form-data; boundary=b"


def part(head: str, content: str = "x", delimiter: str = "--b") -> str:
    return f"{delimiter}\r\n{head}\r\n\r\n{content}\r\n"


def named(name: str, content: str = "x") -> str:
    return part(f'Content-Disposition: form-data; name="{name}"', content)


def read(body: str, content_type: str = TYPE) -> list[Field]:
    return fields_of(content_type, body.encode())


def test_what_a_client_sends_is_read() -> None:
    request = httpx.Request(
        "POST",
        "http://x",
        data={"model": "whisper", "prompt": "a\r\nb"},
        files={"file": ("a.wav", b"\x00\r\n\r\n--", "audio/wav")},
    )
    fields = fields_of(request.headers["content-type"], request.read())
    found = [(field.name, field.value) for field in fields]
    assert found == [("model", "whisper"), ("prompt", "a\r\nb"), ("file", None)]


def test_a_part_can_be_cut_out_where_it_stands() -> None:
    body = (named("a") + named("b", "") + named("c") + "--b--\r\n").encode()
    for left_out in range(3):
        field = fields_of(TYPE, body)[left_out]
        rest = fields_of(TYPE, body[: field.start] + body[field.end :])
        assert [one.name for one in rest] == [n for n in "abc" if n != field.name]


@pytest.mark.parametrize("quoted", ['boundary="b"', "boundary=b; charset=utf-8", "Boundary=b"])
def test_spellings_of_the_type(quoted: str) -> None:
    assert [f.value for f in read(named("a") + "--b--", f"Multipart/Form-Data; {quoted}")] == ["x"]


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=b; boundary=c",
        "multipart/form-data; boundary=b; charset=utf-7",
        'multipart/form-data; boundary="b',
        "multipart/mixed; boundary=b",
    ],
)
def test_another_type_is_refused(content_type: str) -> None:
    with pytest.raises(BadForm):
        read(named("a") + "--b--\r\n", content_type)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "--b--\r\n",
        named("a"),
        "before\r\n" + named("a") + "--b--\r\n",
        named("a") + "--b--\r\nbehind",
        named("a") + "--bc\r\n" + named("d") + "--b--\r\n",
        named("a").replace("\r\n", "\n") + "--b--\n",
        part("Content-Disposition: form-data") + "--b--\r\n",
        part('Content-Disposition: form-data; name="a"; name="b"') + "--b--\r\n",
        part('Content-Disposition: form-data; name="a\\"b"') + "--b--\r\n",
        part("Content-Disposition: form-data; name*=utf-8''a") + "--b--\r\n",
        part('Content-Disposition: form-data; name="a"; filename="b"; name="c"') + "--b--\r\n",
        part('Content-Disposition: form-data; name="a"\r\n name="b"') + "--b--\r\n",
        part('Content-Disposition: form-data; name="a"\r\n' * 2) + "--b--\r\n",
        "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n--b--\r\n",
        named("a", "\udcff") + "--b--\r\n",
    ],
)  # fmt: skip
def test_what_could_be_read_otherwise_is_refused(body: str) -> None:
    with pytest.raises(BadForm):
        fields_of(TYPE, body.encode("utf-8", "surrogateescape"))


def test_fields_are_bounded() -> None:
    most = "".join(named("a") for _ in range(MAX_FIELDS))
    assert len(read(most + "--b--")) == MAX_FIELDS
    with pytest.raises(BadForm, match="more than 1,000 fields"):
        read(most + named("a") + "--b--")
