"""A minimal app on the library cruxial: `PYTHON cruxial_app.py UPSTREAM PORT`, for ``beside``.

Its answer says, as a stream, which calls cruxial let it run, and the text. A call that cruxial
refuses to run is an error. It runs in cruxial's own environment, without this project's packages.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import cruxial
from openai import OpenAI

Json = dict[str, Any]


def turn(client: OpenAI, body: Json) -> list[Json]:
    """Return the chunks of the answer to a request; one turn, with nothing but the defaults."""
    ran: list[Json] = []

    def executor(name: str):
        def run(**arguments: Any) -> str:
            ran.append({"name": name, "arguments": json.dumps(arguments)})
            return "done"

        return run

    names = [tool["function"]["name"] for tool in body["tools"]]
    result = cruxial.run(
        client,
        model=body["model"],
        messages=body["messages"],
        tools=body["tools"],
        executors={name: executor(name) for name in names},
    )
    refused = [call["failure"].message for call in result.tool_calls if not call["ok"]]
    if refused:
        return [{"error": {"message": refused[0]}}]
    calls = [{"index": at, "id": f"call_{at}", "function": one} for at, one in enumerate(ran)]
    delta = {"content": result.text, **({"tool_calls": calls} if calls else {})}
    return [{"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}]


class Handler(BaseHTTPRequestHandler):
    client: OpenAI

    def do_GET(self) -> None:
        self._answer(b"{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        try:
            chunks = turn(self.client, body)
        except Exception as error:  # whatever the library lets through is what the app gets
            chunks = [{"error": {"message": repr(error)}}]
        self._answer(b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in chunks))

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


if __name__ == "__main__":
    Handler.client = OpenAI(base_url=sys.argv[1], api_key="none")
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
