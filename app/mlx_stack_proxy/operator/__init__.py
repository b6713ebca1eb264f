"""The commands of ``mlx-stack-proxy``: a module or package for each, listed in ``cli``."""
