"""The mlx-stack reliability proxy."""
