"""One root file system, one image and one machine for all tests of this folder."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import require_program
from tests.deployed import base, image, machine


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """On a disk, outside of the tree; all of it goes at the end."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs Linux and root: for a root file system, a container, a systemd")
    for program in ("mmdebstrap", "buildah", "runc", "systemd-nspawn"):
        require_program(program)
    with tempfile.TemporaryDirectory(prefix="mlx-stack-deploy-", dir="/var/tmp") as name:
        yield Path(name)
        base.unmount_below(Path(name))


@pytest.fixture(scope="session")
def root(folder: Path) -> Path:
    made = folder / "root"
    base.make_root(made)
    return made


@pytest.fixture(scope="session")
def built(folder: Path, root: Path) -> image.Image:
    found = image.build(root, folder, base.pip_mounts(folder))
    for note in found.notes:
        warnings.warn(note, stacklevel=1)
    return found


@pytest.fixture(scope="session")
def booted(folder: Path, root: Path, built: image.Image) -> Iterator[machine.Machine]:
    """The root with what the image has installed, as a machine of its own."""
    base.run("cp", "-a", built.root / "opt/proxy", root / "opt/proxy")
    with machine.booted(root, folder / "boot.log") as found:
        if found is None:
            said = (folder / "boot.log").read_text(errors="replace")[-500:]
            pytest.skip(
                f"systemd-nspawn boots nothing here ({said.strip()}): the units were only looked "
                "at by systemd-analyze verify (tests/operator/service/test_managers.py)"
            )
        yield found
