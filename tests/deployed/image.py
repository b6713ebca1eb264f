"""The image of the Dockerfile: built and run by buildah, or, where that can't be, in a chroot.

buildah runs containers by runc. Where runc can't make one, what the image holds is run in a chroot
with process numbers of its own; where buildah can't build, the steps of the Dockerfile are carried
out in a chroot, too. Either is said in ``notes``.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deploy.test_docker import instructions
from tests.deployed.base import GENEROUS, eventually, outcome, run

ROOT = Path(__file__).parents[2]
Mounts = list[tuple[Path, str]]


@dataclass
class Config:
    """How the image is run: of the last stage of the Dockerfile."""

    environ: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    folder: str = "/"
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    health: tuple[str, ...] = ()


@dataclass
class Image:
    """``root``: its files. ``container``: the words before a command that buildah is to run in it;
    None where it runs in a chroot. ``notes``: what could not be done here, and what was instead."""

    root: Path
    config: Config
    container: tuple[str, ...] | None
    notes: list[str]

    @contextmanager
    def running(self, log: Path, *options: str, **environ: str) -> Iterator[Process]:
        """The image's own command; ``options`` in place of its last part."""
        mark = {"DEPLOY_TEST": uuid.uuid4().hex}
        words = (*self.config.entrypoint, *(options or self.config.command))
        if self.container is not None:
            given = (f"--env={name}={value}" for name, value in (mark | environ).items())
            argv = (*self.container[:-1], *given, self.container[-1], "--", *words)
        else:
            argv = in_chroot(self.root, self.config, words, mark | environ)
        with log.open("ab") as out, subprocess.Popen(argv, stdout=out, stderr=out) as parent:
            process = Process(self, parent, mark["DEPLOY_TEST"])
            try:
                yield process
            finally:
                if parent.poll() is None and process.number is not None:
                    os.kill(process.number, signal.SIGKILL)
                parent.wait(GENEROUS)


@dataclass
class Process:
    """The image's process. ``parent``: what runs it, and ends with its exit code."""

    image: Image
    parent: subprocess.Popen[bytes]
    mark: str

    @property
    def number(self) -> int | None:
        """As this machine counts; None while it isn't there."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                ours = self.mark.encode() in (folder / "environ").read_bytes()
                if ours and b"mlx-stack-proxy" in (folder / "cmdline").read_bytes():
                    return int(folder.name)
            except OSError:
                continue
        return None

    def healthy(self) -> bool:
        """Whether the image's health check, asked in the container, says so."""
        number = self.number
        if number is None:
            return False
        user, _, group = self.image.config.user.partition(":")
        inside = ("nsenter", "--target", str(number), "--mount", "--pid", "--root", "--wd")
        environ = dict(
            pair.split("=", 1)
            for pair in Path(f"/proc/{number}/environ").read_text().split("\0")
            if "=" in pair
        )
        who = ("--setuid", user, "--setgid", group)
        return outcome(*inside, *who, "--", *self.image.config.health, env=environ)[0] == 0

    def wait_healthy(self, log: Path) -> None:
        try:
            eventually(self.healthy, "the image's health check passes")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log.read_text()}") from None


def in_chroot(
    root: Path,
    config: Config,
    words: tuple[str, ...],
    environ: dict[str, str],
    mounts: Mounts | None = None,
) -> tuple[str, ...]:
    """The command line that runs another in a root as its image would: as process 1."""
    lines = [f"mount -t proc proc {shlex.quote(str(root / 'proc'))}"]
    for here, there in mounts or []:
        target = root / there.lstrip("/")
        _make_mount_point(target, here.is_dir())
        lines.append(f"mount --bind {shlex.quote(str(here))} {shlex.quote(str(target))}")
    given = [f"{name}={value}" for name, value in (config.environ | environ).items()]
    inner = ("env", "-i", "-C", config.folder, *given, *words)
    lines.append(shlex.join(("exec", "chroot", f"--userspec={config.user}", str(root), *inner)))
    return ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", "\n".join(lines))


def _make_mount_point(target: Path, for_folder: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if for_folder:
        target.mkdir(exist_ok=True)
    else:
        target.touch()


def build(base: Path, folder: Path, mounts: Mounts) -> Image:
    """The image on ``base``, a root file system. ``mounts``: what its `RUN` steps see besides."""
    buildah = ("buildah", "--root", f"{folder}/store", "--runroot", f"{folder}/run")
    buildah += ("--storage-driver", _storage())
    code, said = _base_image(buildah, base)
    if code:
        note = f"buildah can't make an image here ({said.strip()}): its steps ran in a chroot"
        root, config = _build_in_chroot(base, folder, mounts)
        return Image(root, config, None, [note])
    isolation, notes = _isolation(buildah)
    volumes = (f"--volume={here}:{there}:ro" for here, there in mounts)
    run(
        *(*buildah, "build", "--format=docker", "--network=host", *isolation, *volumes),
        *("--build-arg=BASE=localhost/base", "--tag=mlx-stack-proxy", ROOT),
    )
    made = run(*buildah, "from", "--name=proxy", "localhost/mlx-stack-proxy").strip()
    config = _config(json.loads(run(*buildah, "inspect", "mlx-stack-proxy"))["Docker"]["config"])
    container = None
    if not notes:
        container = (*buildah, "run", *isolation, "--network=host", "--cap-drop=ALL", made)
    return Image(Path(run(*buildah, "mount", made).strip()), config, container, notes)


def _storage() -> str:
    """Layers over each other, where the kernel can; else each is a whole copy, which takes long."""
    return "overlay" if "overlay" in Path("/proc/filesystems").read_text().split() else "vfs"


def _base_image(buildah: tuple[str, ...], base: Path) -> tuple[int, str]:
    script = """set -e
        made=$("$@" from scratch)
        cp -a "$BASE/." "$("$@" mount "$made")"
        "$@" commit --quiet --rm "$made" localhost/base"""
    environ = {**os.environ, "BASE": str(base)}
    return outcome("sh", "-c", script, "sh", *buildah, env=environ)


def _isolation(buildah: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
    """How buildah can run something here, and what there is to say of it."""
    made = run(*buildah, "from", "localhost/base").strip()
    oci = ("--isolation=oci", "--runtime=runc")
    code, said = outcome(*buildah, "run", *oci, "--network=host", made, "--", "true")
    run(*buildah, "rm", made)
    if code == 0:
        return oci, []
    note = f"runc can't run a container here ({said.strip()}): the image ran in a chroot"
    return ("--isolation=chroot",), [note]


def _config(given: dict[str, Any]) -> Config:
    return Config(
        environ=dict(one.split("=", 1) for one in given["Env"]),
        user=given["User"],
        folder=given["WorkingDir"],
        command=tuple(given["Cmd"]),
        entrypoint=tuple(given["Entrypoint"]),
        health=tuple(given["Healthcheck"]["Test"][1:]),
    )


def _build_in_chroot(base: Path, folder: Path, mounts: Mounts) -> tuple[Path, Config]:
    """The steps of the Dockerfile, one by one; the root and how to run it."""
    stages: list[Path] = []
    config = Config()
    for kind, rest in instructions("Dockerfile"):
        match kind:
            case "FROM":
                stages.append(folder / f"stage-{len(stages)}")
                run("cp", "-a", base, stages[-1])
                config = Config(environ={"PATH": "/usr/local/bin:/usr/bin:/bin"})
            case "RUN":
                words = ("sh", "-c", rest)
                run(*in_chroot(stages[-1], config, words, {}, mounts))
            case "COPY":
                _copy(rest, stages, config)
            case "WORKDIR":
                config.folder = rest
                (stages[-1] / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case _:
                _configure(config, kind, rest)
    return stages[-1], config


def _copy(rest: str, stages: list[Path], config: Config) -> None:
    words = rest.split()
    source = ROOT
    if words[0].startswith("--from="):
        source = stages[0]
        words.pop(0)
    target = stages[-1] / config.folder.lstrip("/") / words[-1]
    if words[-1].startswith("/"):
        target = stages[-1] / words[-1].lstrip("/")
    for word in words[:-1]:
        whole = source / word.lstrip("/")
        if whole.is_dir():
            shutil.copytree(whole, target, symlinks=True, dirs_exist_ok=True)
        else:
            into = target / whole.name if words[-1].endswith("/") else target
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(whole, into)


def _configure(config: Config, kind: str, rest: str) -> None:
    match kind:
        case "ENV":
            for pair in shlex.split(rest):
                name, _, value = pair.partition("=")
                config.environ[name] = value.replace("$PATH", config.environ["PATH"])
        case "USER":
            config.user = rest
        case "ENTRYPOINT":
            config.entrypoint = tuple(json.loads(rest))
        case "CMD":
            config.command = tuple(json.loads(rest))
        case "HEALTHCHECK":
            config.health = tuple(json.loads(rest.partition("CMD ")[2]))
