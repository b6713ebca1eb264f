"""A child to supervise, which does as it is told.

    python scripted_child.py --port 8000 [--fail CODE] [--deaf] [--sick-file FILE] [--grandchild]
                             [--hold-posts]

It answers every GET with 200, or with 503 once the sick file is there.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fail", type=int, help="say so and end with this exit code")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--mute", action="store_true", help="run, but never listen")
    parser.add_argument("--sick-file", help="answer 503 once this file is there")
    parser.add_argument("--grandchild", action="store_true", help="start a sleep of its own")
    parser.add_argument("--hold-posts", action="store_true", help="never answer a POST")
    args = parser.parse_args()
    if args.fail is not None:
        print("it can't go on like this", flush=True)
        return args.fail
    if args.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if args.grandchild:
        print(subprocess.Popen(["sleep", "1000"]).pid, flush=True)
    if args.mute:
        signal.pause()
    serve(args.port, args.sick_file, args.hold_posts)
    return 0


def serve(port: int, sick_file: str | None, hold_posts: bool) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sick = sick_file is not None and os.path.exists(sick_file)
            self.send_response(503 if sick else 200)
            self.end_headers()

        def do_POST(self) -> None:
            if hold_posts:
                threading.Event().wait()
            self.send_error(501)

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    sys.exit(main())
