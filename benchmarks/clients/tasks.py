"""The twenty tasks: write a small program and its test, see it fail, mend it.

Each program is one function. It is first written with one line wrong, of which the test tells, and
then that line is mended. Done is a task when the mended program is there and right, also in cases
that its own test doesn't have.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 30
Case = tuple[tuple[Any, ...], Any]  # what is given, what is wanted


@dataclass(frozen=True)
class Task:
    """`right`: a line of the program; `wrong`: what stands there at first.

    `cases`: the first is one that the wrong line gets wrong, the second one that it gets right;
    these two are the program's own test.
    """

    name: str
    does: str
    program: str
    right: str
    wrong: str
    cases: tuple[Case, ...]

    @property
    def asked(self) -> str:
        return (
            f"Write {self.file} with a function {self.name} that {self.does}, and {self.test_file}"
            f" with a test of it. Run the test, and mend what is wrong until it passes."
        )

    @property
    def file(self) -> str:
        return f"{self.name}.py"

    @property
    def test_file(self) -> str:
        return f"test_{self.name}.py"

    @property
    def faulty(self) -> str:
        return self.program.replace(self.right, self.wrong)

    @property
    def test(self) -> str:
        return tested(self.name, self.cases[:2])

    @property
    def run(self) -> str:
        return f"python3 -B {self.test_file}"  # -B: two programs may be written within a second

    fails = "1 of 2 are right"
    passes = "2 of 2 are right"


def tested(name: str, cases: tuple[Case, ...]) -> str:
    """A program that says how many cases are right, and ends with 0 where all are."""
    return (
        f"from {name} import {name}\n\n"
        f"CASES = {list(cases)!r}\n"
        f"right = sum({name}(*given) == wanted for given, wanted in CASES)\n"
        'print(right, "of", len(CASES), "are right")\n'
        "raise SystemExit(right != len(CASES))\n"
    )


async def done(task: Task, home: Path) -> bool:
    """Whether the program and its test are there, and the program is right."""
    if not all((home / name).is_file() for name in (task.file, task.test_file)):
        return False
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-B", "-c", tested(task.name, task.cases)),
        cwd=home,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(SECONDS):
            return await process.wait() == 0
    except TimeoutError:
        process.kill()
        await process.wait()
        return False


TASKS = (
    Task(
        "clamp",
        "keeps a number between two others",
        "def clamp(value, low, high):\n"
        "    if value < low:\n"
        "        return low\n"
        "    if value > high:\n"
        "        return high\n"
        "    return value\n",
        "    if value > high:",
        "    if value > high * 2:",
        (((15, 0, 10), 10), ((-3, 0, 10), 0), ((5, 0, 10), 5), ((11, 0, 10), 10)),
    ),
    Task(
        "median",
        "gives the median of some numbers",
        "def median(numbers):\n"
        "    ordered = sorted(numbers)\n"
        "    half = len(ordered) // 2\n"
        "    below = half if len(ordered) % 2 else half - 1\n"
        "    return (ordered[below] + ordered[half]) / 2\n",
        "    below = half if len(ordered) % 2 else half - 1",
        "    below = half",
        ((([4, 1, 3, 2],), 2.5), (([3, 1, 2],), 2), (([7],), 7), (([1, 9],), 5.0)),
    ),
    Task(
        "vowels",
        "counts the vowels of a text",
        "def vowels(text):\n    return sum(letter in 'aeiou' for letter in text.lower())\n",
        "    return sum(letter in 'aeiou' for letter in text.lower())",
        "    return sum(letter in 'aeiou' for letter in text)",
        ((("Ada Lovelace",), 6), (("quokka",), 3), (("",), 0), (("EIO",), 3)),
    ),
    Task(
        "is_leap",
        "says whether a year is a leap year",
        "def is_leap(year):\n"
        "    if year % 400 == 0:\n"
        "        return True\n"
        "    return year % 4 == 0 and year % 100 != 0\n",
        "    return year % 4 == 0 and year % 100 != 0",
        "    return year % 4 == 0",
        (((1900,), False), ((2024,), True), ((2000,), True), ((2023,), False), ((2100,), False)),
    ),
    Task(
        "roman",
        "writes a number in Roman digits",
        "DIGITS = [\n"
        "    (100, 'C'), (90, 'XC'), (50, 'L'), (40, 'XL'),\n"
        "    (10, 'X'), (9, 'IX'), (5, 'V'), (4, 'IV'), (1, 'I'),\n"
        "]\n\n\n"
        "def roman(number):\n"
        "    written = ''\n"
        "    for value, digit in DIGITS:\n"
        "        while number >= value:\n"
        "            written += digit\n"
        "            number -= value\n"
        "    return written\n",
        "    (10, 'X'), (9, 'IX'), (5, 'V'), (4, 'IV'), (1, 'I'),",
        "    (10, 'X'), (5, 'V'), (4, 'IV'), (1, 'I'),",
        (((29,), "XXIX"), ((14,), "XIV"), ((99,), "XCIX"), ((3,), "III")),
    ),
    Task(
        "words",
        "counts how often each word occurs, whatever its case",
        "def words(text):\n"
        "    found = {}\n"
        "    for word in text.lower().split():\n"
        "        found[word] = found.get(word, 0) + 1\n"
        "    return found\n",
        "    for word in text.lower().split():",
        "    for word in text.split():",
        (
            (("The end of the road",), {"the": 2, "end": 1, "of": 1, "road": 1}),
            (("one two one",), {"one": 2, "two": 1}),
            (("A a",), {"a": 2}),
        ),
    ),
    Task(
        "flatten",
        "makes one flat list of nested lists",
        "def flatten(nested):\n"
        "    flat = []\n"
        "    for one in nested:\n"
        "        if isinstance(one, list):\n"
        "            flat += flatten(one)\n"
        "        else:\n"
        "            flat.append(one)\n"
        "    return flat\n",
        "            flat += flatten(one)",
        "            flat += one",
        ((([1, [2, [3]]],), [1, 2, 3]), (([1, [2]],), [1, 2]), (([[[[4]]], 5],), [4, 5])),
    ),
    Task(
        "chunked",
        "cuts a list into pieces of a size, the last of which may be shorter",
        "def chunked(items, size):\n"
        "    starts = range(0, len(items), size)\n"
        "    return [items[start : start + size] for start in starts]\n",
        "    starts = range(0, len(items), size)",
        "    starts = range(0, len(items) // size * size, size)",
        (
            (([1, 2, 3], 2), [[1, 2], [3]]),
            (([1, 2], 2), [[1, 2]]),
            (([], 3), []),
            (([1], 5), [[1]]),
        ),
    ),
    Task(
        "fibonacci",
        "gives the first so many Fibonacci numbers, from 0 on",
        "def fibonacci(count):\n"
        "    found = []\n"
        "    now, following = 0, 1\n"
        "    for _ in range(count):\n"
        "        found.append(now)\n"
        "        now, following = following, now + following\n"
        "    return found\n",
        "        now, following = following, now + following",
        "        now, following = following, following + 1",
        (((6,), [0, 1, 1, 2, 3, 5]), ((1,), [0]), ((0,), []), ((8,), [0, 1, 1, 2, 3, 5, 8, 13])),
    ),
    Task(
        "is_prime",
        "says whether a number is prime",
        "def is_prime(number):\n"
        "    if number < 2:\n"
        "        return False\n"
        "    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))\n",
        "    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))",
        "    return all(number % divisor for divisor in range(2, int(number**0.5)))",
        (((49,), False), ((13,), True), ((1,), False), ((2,), True), ((97,), True), ((9,), False)),
    ),
    Task(
        "slug",
        "makes a slug of a title: small letters and digits, with single hyphens between words",
        "import re\n\n\n"
        "def slug(title):\n"
        "    return re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')\n",
        "    return re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')",
        "    return re.sub('[^a-z0-9]', '-', title.lower()).strip('-')",
        ((("Hello,  World!",), "hello-world"), (("One two",), "one-two"), (("--A--B",), "a-b")),
    ),
    Task(
        "caesar",
        "shifts the small letters of a text by so many places of the alphabet",
        "def caesar(text, places):\n"
        "    shifted = ''\n"
        "    for letter in text:\n"
        "        if 'a' <= letter <= 'z':\n"
        "            letter = chr((ord(letter) - 97 + places) % 26 + 97)\n"
        "        shifted += letter\n"
        "    return shifted\n",
        "            letter = chr((ord(letter) - 97 + places) % 26 + 97)",
        "            letter = chr(ord(letter) + places)",
        ((("xyz", 3), "abc"), (("abc def", 1), "bcd efg"), (("abc", -1), "zab"), (("A1", 5), "A1")),
    ),
    Task(
        "balanced",
        "says whether the brackets of a text are balanced",
        "PAIRS = {')': '(', ']': '[', '}': '{'}\n\n\n"
        "def balanced(text):\n"
        "    open_ones = []\n"
        "    for letter in text:\n"
        "        if letter in PAIRS.values():\n"
        "            open_ones.append(letter)\n"
        "        elif letter in PAIRS:\n"
        "            if not open_ones or open_ones.pop() != PAIRS[letter]:\n"
        "                return False\n"
        "    return not open_ones\n",
        "    return not open_ones",
        "    return True",
        (
            (("(a",), False),
            (("[(b)]",), True),
            (("(]",), False),
            ((")",), False),
            (("{}[",), False),
        ),
    ),
    Task(
        "merged",
        "merges two sorted lists into one sorted list",
        "def merged(left, right):\n"
        "    found, left, right = [], list(left), list(right)\n"
        "    while left and right:\n"
        "        found.append(left.pop(0) if left[0] <= right[0] else right.pop(0))\n"
        "    return found + left + right\n",
        "    return found + left + right",
        "    return found + left",
        ((([1, 4], [2, 5]), [1, 2, 4, 5]), (([3], [1, 2]), [1, 2, 3]), (([], [1]), [1])),
    ),
    Task(
        "binary",
        "writes a number of zero or more in binary digits",
        "def binary(number):\n"
        "    digits = ''\n"
        "    while number:\n"
        "        digits = str(number % 2) + digits\n"
        "        number //= 2\n"
        "    return digits or '0'\n",
        "        digits = str(number % 2) + digits",
        "        digits = digits + str(number % 2)",
        (((6,), "110"), ((5,), "101"), ((0,), "0"), ((8,), "1000")),
    ),
    Task(
        "days_in_month",
        "gives the days of a month (1 to 12) of a year",
        "def days_in_month(year, month):\n"
        "    if month == 2:\n"
        "        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)\n"
        "        return 29 if leap else 28\n"
        "    return 30 if month in (4, 6, 9, 11) else 31\n",
        "    return 30 if month in (4, 6, 9, 11) else 31",
        "    return 30 if month % 2 == 0 else 31",
        (((2023, 8), 31), ((2024, 2), 29), ((2023, 9), 30), ((2023, 12), 31), ((1900, 2), 28)),
    ),
    Task(
        "run_lengths",
        "lists each letter of a text with how often it stands there in a row",
        "def run_lengths(text):\n"
        "    found = []\n"
        "    for letter in text:\n"
        "        if found and found[-1][0] == letter:\n"
        "            found[-1][1] += 1\n"
        "        else:\n"
        "            found.append([letter, 1])\n"
        "    return found\n",
        "            found.append([letter, 1])",
        "            found.insert(0, [letter, 1])",
        (
            (("aab",), [["a", 2], ["b", 1]]),
            (("zz",), [["z", 2]]),
            (("aba",), [["a", 1], ["b", 1], ["a", 1]]),
        ),
    ),
    Task(
        "transposed",
        "turns the rows of a table into columns",
        "def transposed(rows):\n    return [list(column) for column in zip(*rows)]\n",
        "    return [list(column) for column in zip(*rows)]",
        "    return [list(row) for row in rows]",
        ((([[1, 2], [3, 4]],), [[1, 3], [2, 4]]), (([[5]],), [[5]]), (([[1, 2]],), [[1], [2]])),
    ),
    Task(
        "unique",
        "leaves out what a list has twice, and keeps the order",
        "def unique(items):\n"
        "    found = []\n"
        "    for item in items:\n"
        "        if item not in found:\n"
        "            found.append(item)\n"
        "    return found\n",
        "        if item not in found:",
        "        if item not in found[-1:]:",
        ((([1, 2, 1],), [1, 2]), (([1, 1, 2],), [1, 2]), ((["b", "a", "b", "a"],), ["b", "a"])),
    ),
    Task(
        "minutes",
        "turns a time such as 2h05m into minutes",
        "import re\n\n\n"
        "def minutes(time):\n"
        "    hours, rest = re.fullmatch(r'(?:(\\d+)h)?(?:(\\d+)m)?', time).groups()\n"
        "    return int(hours or 0) * 60 + int(rest or 0)\n",
        "    return int(hours or 0) * 60 + int(rest or 0)",
        "    return int(hours or 0) * 100 + int(rest or 0)",
        ((("2h05m",), 125), (("45m",), 45), (("1h",), 60), (("",), 0)),
    ),
)
