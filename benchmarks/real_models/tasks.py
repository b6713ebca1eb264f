"""Twenty short agent tasks on a small folder, each checked by what is there afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.records import Json
from tests.tool_validation.calls import parameters

SYSTEM = (
    "You are a coding agent working in a project folder. Use the tools to do the task. When it is "
    "done, answer in one short sentence."
)
_CALC = "def add(a, b):\n    return a - b\n"
_TEST_CALC = 'from calc import add\nassert add(2, 3) == 5\nprint("ok")\n'
_README = "# Demo\n\nThis is the foo project. Use foo well.\n"
FILES = {
    "a.txt": "apples\n",
    "b.txt": "the word zebra is here\nand more text\n",
    "c.txt": "cherries\n",
    "config.json": '{"port": 8123, "host": "localhost"}\n',
    "readme.md": _README,
    "nums.txt": "3\n4\n10\n",
    "calc.py": _CALC,
    "test_calc.py": _TEST_CALC,
    "old.txt": "old\n",
    "temp.log": "x\n",
    "src/main.py": 'print("main")\n',
    "src/util.py": 'def greet(name):\n    return "Hello " + nmae\n',
    "data/list.csv": "id,name\n1,Ann\n2,Bob\n3,Cyd\n",
}
# Models run commands of their own: nothing outside the folder, and no network.
_FORBIDDEN = (
    *("sudo", " /", "..", "kill", "curl", "wget", "pip ", "apt", "shutdown", "~", "http"),
    *("npm", "git ", "ssh", "nc ", "$HOME", "$("),
)
_COMMAND_SECONDS = 20


def _tool(name: str, description: str, **texts: str) -> Json:
    properties = {key: {"type": "string", "description": text} for key, text in texts.items()}
    schema = parameters(*texts, **properties)
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


_RUN = "Run a shell command in the project folder and return its output."
TOOLS = [
    _tool("list_dir", "List the entries of a directory.", path='directory, "." is the project'),
    _tool("read_file", "Return the text of a file.", path="file to read"),
    _tool(
        "write_file",
        "Create or replace a file.",
        path="file to write",
        content="the whole new text",
    ),
    _tool("run_command", _RUN, command="the command"),
]
NAMES = [tool["function"]["name"] for tool in TOOLS]


class Folder:
    """A project folder in which one task is done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name, text in FILES.items():
            file = path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def text(self, name: str) -> str:
        file = self.path / name
        return file.read_text(errors="replace") if file.is_file() else ""

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-B", *arguments]
        return subprocess.run(
            command, cwd=self.path, capture_output=True, text=True, timeout=_COMMAND_SECONDS
        )

    def use(self, name: str, arguments: Json) -> str:
        """Return what a tool answers; errors as text."""
        try:
            return self._use(name, arguments)[:3000]
        except Exception as error:
            return f"Error: {type(error).__name__}: {error}".replace(str(self.path), ".")

    def _use(self, name: str, arguments: Json) -> str:
        if name == "run_command":
            return self._run(str(arguments["command"]))
        file = (self.path / str(arguments["path"]).lstrip("/")).resolve()
        if not file.is_relative_to(self.path.resolve()):
            return "Error: outside the project folder"
        if name == "list_dir":
            return "\n".join(sorted(e.name + "/" * e.is_dir() for e in file.iterdir()))
        if name == "read_file":
            return file.read_text()
        if name == "write_file":
            content = str(arguments["content"])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
            return f"wrote {len(content)} characters"
        return f"Error: unknown tool {name}"

    def _run(self, command: str) -> str:
        if any(word in command for word in _FORBIDDEN):
            return "Error: command not allowed"
        limited = f"ulimit -v 2000000; {command}"
        done = subprocess.run(
            limited,
            shell=True,
            cwd=self.path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
        )
        output = (done.stdout + done.stderr)[-1500:]
        return output or f"(exit {done.returncode}, no output)"


@dataclass(frozen=True)
class Task:
    name: str
    asked: str
    done: Callable[[Folder, str], bool]  # by the folder and the agent's last answer


def _config_changed(folder: Folder, _: str) -> bool:
    text = folder.text("config.json")
    return "9000" in text and "localhost" in text and "8123" not in text


_MUL = "import calc; assert calc.mul(3, 4) == 12 and calc.add(5, 3) == 2"

TASKS = [
    Task(
        "find_word",
        'Which of the files a.txt, b.txt and c.txt contains the word "zebra"? Name the file.',
        lambda _, text: "b.txt" in text and "a.txt" not in text.replace("a.txt and c.txt", ""),
    ),
    Task(
        "create",
        "Create the file notes.txt with the text: remember the milk",
        lambda folder, _: folder.text("notes.txt").strip() == "remember the milk",
    ),
    Task("port", "Which port does config.json set?", lambda _, text: "8123" in text),
    Task(
        "fix_add",
        "The function in calc.py is wrong: test_calc.py fails. Fix calc.py so that "
        "`python3 test_calc.py` passes.",
        lambda folder, _: (
            folder.python("test_calc.py").returncode == 0
            and folder.text("test_calc.py") == _TEST_CALC
        ),
    ),
    Task(
        "rename",
        "Rename old.txt to new.txt.",
        lambda folder, _: folder.text("new.txt") == "old\n" and not folder.text("old.txt"),
    ),
    Task(
        "delete",
        "Delete the file temp.log.",
        lambda folder, _: not (folder.path / "temp.log").exists() and bool(folder.text("a.txt")),
    ),
    Task(
        "replace",
        'In readme.md replace every "foo" by "bar" and keep the rest as it is.',
        lambda folder, _: folder.text("readme.md") == _README.replace("foo", "bar"),
    ),
    Task(
        "sum",
        "Add the numbers in nums.txt and write the sum into sum.txt.",
        lambda folder, _: folder.text("sum.txt").strip() == "17",
    ),
    Task(
        "hello",
        "Write hello.py that prints Hello, world and run it.",
        lambda folder, _: "Hello, world" in folder.python("hello.py").stdout,
    ),
    Task(
        "count_src",
        "How many files are in the folder src?",
        lambda _, text: "2" in text or "two" in text.lower(),
    ),
    Task(
        "typo",
        "src/util.py has a typo in a variable name. Fix it.",
        lambda folder, _: '"Hello " + name' in folder.text("src/util.py"),
    ),
    Task(
        "lines",
        "How many lines does data/list.csv have, with the header?",
        lambda _, text: "4" in text or "four" in text.lower(),
    ),
    Task(
        "mkdir",
        "Make a folder out and in it a file x.txt with the text 1",
        lambda folder, _: folder.text("out/x.txt").strip() == "1",
    ),
    Task(
        "copy_host",
        "Read the host in config.json and write only that host into host.txt.",
        lambda folder, _: folder.text("host.txt").strip() == "localhost",
    ),
    Task("port_change", "Change the port in config.json to 9000, keep the host.", _config_changed),
    Task(
        "run_main",
        "Run src/main.py with python3 and tell me what it prints.",
        lambda _, text: "main" in text.replace("main.py", ""),
    ),
    Task("bob", "Which id does Bob have in data/list.csv?", lambda _, text: "2" in text),
    Task(
        "append",
        'Append the line "dates" to c.txt, and keep what is there.',
        lambda folder, _: folder.text("c.txt").split() == ["cherries", "dates"],
    ),
    Task(
        "mul",
        "Add a function mul(a, b) to calc.py that multiplies. Keep add as it is.",
        lambda folder, _: folder.python("-c", _MUL).returncode == 0,
    ),
    Task(
        "py_files",
        "List all .py files of the project, also those in src.",
        lambda _, text: all(
            name in text for name in ("calc.py", "test_calc.py", "main.py", "util.py")
        ),
    ),
]
