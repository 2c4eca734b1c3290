"""Writes the TorchScript modules of the tests beside this file. Run with torch 2.11 (`cargo xtask setup` has one)."""

import io
import zipfile
from pathlib import Path
from typing import Dict, List, Tuple

import torch
from torch import Tensor, nn

HERE = Path(__file__).parent


class Throws(nn.Module):
    """The identity, unless the first voxel of any row is above 100."""

    def forward(self, x: Tensor) -> Tensor:
        if bool((x[:, 0, 0, 0, 0] > 100).any()):
            raise ValueError("voxel too bright")
        return x


class Halves(nn.Module):
    """Gives patches of half the size."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, ::2, ::2, ::2]


class InPlace(nn.Module):
    """Adds 1 to its own input, and throws, after that, where the first voxel was above 100."""

    def forward(self, x: Tensor) -> Tensor:
        bright = bool((x[:, 0, 0, 0, 0] > 100).any())
        x.add_(1)
        if bright:
            raise ValueError("voxel too bright")
        return x


class FirstOfTuple(nn.Module):
    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        return x, x.sum()


class ListOfTwo(nn.Module):
    def forward(self, x: Tensor) -> List[Tensor]:
        return [x, x]


class DictOfOne(nn.Module):
    def forward(self, x: Tensor) -> Dict[str, Tensor]:
        return {"out": x}


class Gathers(nn.Module):
    """Mirrors x with a table of indices, which must keep its integer kind, and scales with a weight, which must not."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(7, -1, -1))
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, :, :, self.table] * self.scale


class Drops(nn.Module):
    """The identity by way of dropout, which does nothing in evaluation mode only."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x)


MODULES = {
    "throws": Throws,
    "halves": Halves,
    "in_place": InPlace,
    "first_of_tuple": FirstOfTuple,
    "list_of_two": ListOfTwo,
    "dict_of_one": DictOfOne,
    "gathers": Gathers,
    "drops": Drops,
}


def save(module: nn.Module, path: Path) -> None:
    """Saves `module` without the debug records, which hold the paths of the machine it was made on."""
    whole = io.BytesIO()
    torch.jit.save(torch.jit.script(module.train()), whole)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.namelist():
            if not entry.endswith(".debug_pkl"):
                target.writestr(zipfile.ZipInfo(entry), source.read(entry))


for name, module in MODULES.items():
    save(module(), HERE / f"{name}.pt")
