"""One task of ToolCallBench: ``toolcallbench_task.py URL MODEL NUMBER KEY``, its result as JSON.

``KEY``: an API key, or "". Runs in the environment that has ``toolcallbench``; imports nothing of
the project.
"""

import json
import sys
import urllib.request

from toolcallbench.backends import OpenAICompatBackend
from toolcallbench.config import data_dir
from toolcallbench.runner import run_once
from toolcallbench.tasks import load_tasks

url, model, number, key = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
if key:  # ToolCallBench sends none
    opener = urllib.request.build_opener()
    opener.addheaders = [("Authorization", f"Bearer {key}")]
    urllib.request.install_opener(opener)
task = load_tasks(data_dir() / "tasks")[number]
backend = OpenAICompatBackend(model, url, {"temperature": 0}, timeout=900)
record = run_once(task, backend, data_dir() / "fixtures" / "repo", max_turns=8)
check = record.check
result = {
    "name": task.id,
    "done": check is not None and check.passed,
    "failure": check.failure_type if check is not None else "error",
    "end": "error" if record.status == "error" else "limit" if record.transcript.hit_limit else "",
    "error": record.error[:300],
    "turns": record.transcript.turns,
    "final": record.transcript.final_text[:500],
    "text_call": record.transcript.text_tool_call,
}
print(json.dumps(result))
