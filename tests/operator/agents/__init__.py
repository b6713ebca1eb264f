"""The command `mlx-stack-proxy agents`."""
