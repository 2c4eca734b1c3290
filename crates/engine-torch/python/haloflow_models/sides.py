"""What a patch's sides must be divisible by: found by trying, and checked for a trace."""

import torch
from torch import Tensor, nn

STEPS = (1, 2, 4, 8, 16, 32, 64)


def divisible_by(model: nn.Module, channels: int, patch: tuple[int, int, int]) -> tuple[int, int, int]:
    """For each axis the smallest power of two by which the patch may grow, or the side itself where it may not grow."""
    return tuple(step_of(model, channels, patch, axis) for axis in range(3))


def step_of(model: nn.Module, channels: int, patch: tuple[int, int, int], axis: int) -> int:
    """The step of one axis."""
    for step in STEPS:
        if patch[axis] % step == 0 and accepts(model, channels, grown(patch, axis, step)):
            return step
    return patch[axis]


def grown(patch: tuple[int, int, int], axis: int, step: int) -> tuple[int, int, int]:
    """The patch, longer by `step` along one axis."""
    return tuple(side + step * (index == axis) for index, side in enumerate(patch))


def accepts(model: nn.Module, channels: int, patch: tuple[int, int, int]) -> bool:
    """Whether the model gives a patch of the same shape."""
    try:
        output = model(torch.zeros(1, channels, *patch))
    except Exception:
        return False
    return isinstance(output, Tensor) and tuple(output.shape[-3:]) == tuple(patch)


def holds(script, model: nn.Module, example: Tensor, steps: tuple[int, int, int], tolerance: float) -> bool:
    """Whether `script` still gives what the model gives for a patch that is one step longer along each axis.

    A trace may have kept what depended on the patch, such as a table of positions, as a constant.
    """
    larger = [side + step for side, step in zip(example.shape[2:], steps)]
    x = torch.rand((1, example.shape[1], *larger), generator=torch.Generator().manual_seed(1))
    try:
        eager, given = model(x), script(x)
    except Exception:
        return False
    return eager.shape == given.shape and bool((given - eager).abs().max() <= tolerance * eager.abs().max())
