"""What `observability.capture_failures` has written."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from mlx_stack_proxy.telemetry import failure_capture

Json = dict[str, Any]
GENEROUS = 5  # seconds; what takes longer hangs


async def captured(folder: Path, count: int) -> list[Json]:
    """The records, once there are so many."""
    async with asyncio.timeout(GENEROUS):
        while True:
            file = folder / failure_capture.FILE
            *lines, rest = file.read_bytes().split(b"\n") if file.exists() else [b""]
            if len(lines) >= count and not rest:
                assert len(lines) == count
                return [json.loads(line) for line in lines]
            await asyncio.sleep(0.01)
