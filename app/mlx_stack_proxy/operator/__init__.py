"""The commands of ``mlx-stack-proxy``."""
