"""``mlx-stack-proxy completion``: print the code that lets a shell complete our commands."""

from __future__ import annotations

import argparse

from argcomplete.shell_integration import shellcode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    parser.description = (
        'In ~/.bashrc or ~/.zshrc: eval "$(mlx-stack-proxy completion bash)", or zsh. For fish: '
        "mlx-stack-proxy completion fish > ~/.config/fish/completions/mlx-stack-proxy.fish"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    print(shellcode(["mlx-stack-proxy"], shell=args.shell))
    return 0
