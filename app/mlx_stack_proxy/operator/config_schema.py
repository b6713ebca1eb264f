"""``mlx-stack-proxy config schema``: print the JSON Schema with which editors check the file."""

from __future__ import annotations

import argparse

from ..settings_source import SCHEMA


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = parser.add_subparsers(required=True, metavar="WHAT")
    about.add_parser("schema", help="print its JSON Schema, for editors").set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    print(SCHEMA.read_text(encoding="utf-8"), end="")
    return 0
