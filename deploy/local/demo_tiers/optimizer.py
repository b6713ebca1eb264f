"""Muon for the matrices, Adam for the rest: learns more from each token than Adam alone."""

from collections import defaultdict

import torch
from torch import Tensor, nn


def orthogonalize(g: Tensor) -> Tensor:
    """The nearest (semi-)orthogonal matrices to a stack of them, by Newton-Schulz steps."""
    x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(5):
        s = x @ x.mT
        x = 3.4445 * x + (-4.7750 * s + 2.0315 * s @ s) @ x
    return x.mT if tall else x


class Optimizer:
    def __init__(self, model: nn.Module, matrix_rate: float, other_rate: float) -> None:
        self.matrix_rate = matrix_rate
        self.groups: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
        others = []
        for name, p in model.named_parameters():
            if p.dim() == 2 and "embed" not in name:
                self.groups[tuple(p.shape)].append(p)
            else:
                others.append(p)
        self.momenta = {shape: torch.zeros(len(ps), *shape) for shape, ps in self.groups.items()}
        self.adam = torch.optim.Adam(others, lr=other_rate, betas=(0.9, 0.97), eps=1e-10)
        self.other_rate = other_rate

    @torch.no_grad()
    def step(self, scale: float, momentum: float) -> None:
        """One step at `scale` of the full rates."""
        for shape, parameters in self.groups.items():
            g = torch.stack([p.grad for p in parameters if p.grad is not None])
            m = self.momenta[shape]
            m.lerp_(g, 1 - momentum)
            update = orthogonalize(g.lerp(m, momentum))
            rate = self.matrix_rate * scale * max(1, shape[0] / shape[1]) ** 0.5
            for p, u in zip(parameters, update, strict=True):
                p.mul_(1 - 0.02 * rate).add_(u, alpha=-rate)
        for group in self.adam.param_groups:
            group["lr"] = self.other_rate * scale
        self.adam.step()

    def zero_grad(self) -> None:
        for parameters in self.groups.values():
            for p in parameters:
                p.grad = None
        self.adam.zero_grad()
