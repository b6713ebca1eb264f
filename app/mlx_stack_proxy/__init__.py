"""The mlx-stack reliability proxy."""

from importlib import metadata

try:
    __version__ = metadata.version("mlx-stack-proxy")
except metadata.PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0"
