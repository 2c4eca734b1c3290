"""Writes the TorchScript modules of these tests beside this file. Run with torch 2.11 (`cargo xtask setup` has one)."""

import io
import zipfile
from pathlib import Path

import torch
from torch import Tensor, nn

HERE = Path(__file__).parent

# Standard output is written through when this much has come, so whoever reads it sees the line while the module still runs.
LINE = "." * 9000


class Speaks(nn.Module):
    """The identity, with a line on standard output at the beginning of every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.line: str = LINE

    def forward(self, x: Tensor) -> Tensor:
        print("batch", self.line)
        for _ in range(40):
            x = x + 0
        return x


class Sticks(nn.Module):
    """The identity, but where a voxel is above 60000 it tells so and never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.line: str = LINE

    def forward(self, x: Tensor) -> Tensor:
        if bool((x > 60000).any()):
            print("stuck", self.line)
            while bool((x > 60000).any()):
                x = x + 0
        return x


class Throws(nn.Module):
    """The identity, but where a voxel is above 60000 it tells so and throws."""

    def __init__(self) -> None:
        super().__init__()
        self.line: str = LINE

    def forward(self, x: Tensor) -> Tensor:
        if bool((x > 60000).any()):
            print("throwing", self.line)
            raise ValueError("a voxel is too bright for this network")
        return x


class GivesNan(nn.Module):
    """The identity, but NaN where a voxel is above 60000."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 60000, torch.full_like(x, float("nan")), x)


class Halves(nn.Module):
    """Gives patches of half the size."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, ::2, ::2, ::2]


class Slow(nn.Module):
    """The identity, with a line on standard output at the beginning of every batch, and slow."""

    def __init__(self) -> None:
        super().__init__()
        self.line: str = LINE

    def forward(self, x: Tensor) -> Tensor:
        print("batch", self.line)
        for _ in range(3000):
            x = x + 0
        return x


MODELS = {"speaks": Speaks, "slow": Slow, "sticks": Sticks, "throws": Throws, "gives_nan": GivesNan, "halves": Halves}


def save(module: nn.Module, path: Path) -> None:
    """Saves `module` without the debug records, which hold the paths of the machine it was made on."""
    whole = io.BytesIO()
    torch.jit.save(torch.jit.script(module.eval()), whole)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.namelist():
            if not entry.endswith(".debug_pkl"):
                target.writestr(zipfile.ZipInfo(entry), source.read(entry))


for name, module in MODELS.items():
    save(module(), HERE / f"{name}.pt")
