"""What a model gives: a bundle's module gives one tensor, whatever the model itself gives."""

import torch
from torch import Tensor, nn

from .failure import Cannot, Usage


class Item(nn.Module):
    """One item of the list or tuple that a model gives."""

    def __init__(self, model: nn.Module, index: int) -> None:
        super().__init__()
        self.model = model
        self.index: int = index

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)[self.index]


class Entry(nn.Module):
    """One entry of the dictionary that a model gives."""

    def __init__(self, model: nn.Module, key: str) -> None:
        super().__init__()
        self.model = model
        self.key: str = key

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)[self.key]


class Joined(nn.Module):
    """All items of the list that a model gives, one after the other along the channels."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.model(x), dim=1)


def one_tensor(model: nn.Module, output, take: str | None) -> nn.Module:
    """`model`, or a module around it that gives one tensor. `output` is what it gave; `take` is "all", an index or a key."""
    if isinstance(output, Tensor):
        if take is not None:
            raise Usage("--take has no meaning here: the model gives one tensor")
        return model
    if isinstance(output, dict):
        return Entry(model, key_of(list(output), take))
    if isinstance(output, (list, tuple)):
        if take == "all":
            return Joined(model)
        return Item(model, index_of(len(output), isinstance(output, tuple), take))
    raise Cannot(f"the model gives a {type(output).__name__}, not a tensor")


def key_of(keys: list, take: str | None) -> str:
    """The key to take out of a dictionary: the named one, or the only one."""
    if take is None and len(keys) == 1:
        return keys[0]
    if take in keys:
        return take
    raise Usage(f"the model gives a dictionary: choose one of its keys with --take: {', '.join(map(str, keys))}")


def index_of(length: int, is_tuple: bool, take: str | None) -> int:
    """The index to take: the given one, the only one, or the first of a tuple, whose others are by custom extras."""
    if take is None and (length == 1 or (is_tuple and length > 0)):
        return 0
    if take is not None and take.isdigit() and int(take) < length:
        return int(take)
    raise Usage(f"the model gives {length} tensors: choose with --take 0 to {length - 1}, or --take all to join them")


def channels(output: Tensor, rows: int, patch: tuple[int, int, int]) -> int:
    """The channels of an output of `rows` patches, or what is wrong with its shape. An output without an axis for them has one."""
    size = tuple(output.shape)
    if size[-3:] != tuple(patch) or size[:1] != (rows,) or len(size) not in (4, 5):
        wanted = ", ".join(map(str, (rows, "channels", *patch)))
        raise Cannot(f"the model gives a tensor of the shape {list(size)}: [{wanted}] is needed")
    return size[1] if len(size) == 5 else 1
