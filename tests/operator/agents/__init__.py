"""The commands `mlx-stack-proxy launch` and `agents`."""
