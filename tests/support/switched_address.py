"""An address that leads to one server and then to another, as in a failover.

A change of ``target`` moves only new connections; open ones stay with the earlier server.
"""

from __future__ import annotations

import asyncio
import contextlib


class SwitchedAddress:
    """A TCP relay on ``port``, for an ``async with`` block.

    ``target``: the loopback port to which it connects new clients; assign to it to switch.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> SwitchedAddress:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.close()
        while self._open:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        except OSError:
            writer.close()
        finally:
            self._open.discard(writer)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
