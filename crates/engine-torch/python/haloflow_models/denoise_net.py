"""The denoiser of exaSPIM tiles: a 3-D U-Net of four poolings, with the names that its checkpoints use.

Two kinds of weights exist. Those of 2025 have BatchNorm and give the image itself; those of 2026 have GroupNorm of 8 groups and
give a correction that is added to the input.
"""

from math import gcd

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The channels after `inc` and after each `down`.
WIDTHS = (32, 64, 128, 256, 256)


def norm_layer(norm: str, channels: int) -> nn.Module:
    """The normalisation `norm`, "batch" or "group", of `channels` channels."""
    if norm == "batch":
        return nn.BatchNorm3d(channels)
    if norm == "group":
        return nn.GroupNorm(gcd(8, channels), channels)
    raise ValueError(f'the norm is "batch" or "group", not "{norm}"')


class DoubleConv(nn.Module):
    """Two convolutions of 3 x 3 x 3, each with a normalisation and a LeakyReLU of slope 0.01."""

    def __init__(self, channels_in: int, middle: int, channels_out: int, norm: str) -> None:
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv3d(channels_in, middle, kernel_size=3, padding=1),
            norm_layer(norm, middle),
            nn.LeakyReLU(0.01, inplace=True),
            nn.Conv3d(middle, channels_out, kernel_size=3, padding=1),
            norm_layer(norm, channels_out),
            nn.LeakyReLU(0.01, inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.double_conv(x)


class Down(nn.Module):
    """Halves each side, then convolves."""

    def __init__(self, channels_in: int, channels_out: int, norm: str) -> None:
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool3d(2), DoubleConv(channels_in, channels_out, channels_out, norm))

    def forward(self, x: Tensor) -> Tensor:
        return self.maxpool_conv(x)


class Up(nn.Module):
    """Doubles each side, joins the skip in front, then convolves."""

    def __init__(self, channels_in: int, channels_out: int, norm: str) -> None:
        super().__init__()
        self.up = nn.Upsample(scale_factor=2, mode="trilinear", align_corners=True)
        self.conv = DoubleConv(channels_in, channels_in // 2, channels_out, norm)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        x = self.up(x)
        z, y, x_missing = skip.size(2) - x.size(2), skip.size(3) - x.size(3), skip.size(4) - x.size(4)
        # A copy is saved where the sides are multiples of 16, as they should be.
        if z + y + x_missing > 0:
            x = F.pad(x, [x_missing // 2, x_missing - x_missing // 2, y // 2, y - y // 2, z // 2, z - z // 2])
        return self.conv(torch.cat([skip, x], dim=1))


class OutConv(nn.Module):
    """A convolution of 1 x 1 x 1 to the outputs."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(channels_in, channels_out, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class DenoiseNet(nn.Module):
    """The denoiser: `(batch, 1, z, y, x)` to the same size, sides multiples of 16.

    `norm` is "batch" or "group"; `residual` adds the input to the output and is on by default with "group" only;
    `widths` are the channels of the five levels, of which the last two are equal and all are even.
    """

    def __init__(self, norm: str = "batch", residual: bool | None = None, widths: tuple = WIDTHS) -> None:
        super().__init__()
        first, second, third, fourth, fifth = check_widths(widths)
        self.residual = (norm == "group") if residual is None else residual
        self.inc = DoubleConv(1, first, first, norm)
        self.down1 = Down(first, second, norm)
        self.down2 = Down(second, third, norm)
        self.down3 = Down(third, fourth, norm)
        self.down4 = Down(fourth, fifth, norm)
        self.up1 = Up(fifth + fourth, third, norm)
        self.up2 = Up(third + third, second, norm)
        self.up3 = Up(second + second, first, norm)
        self.up4 = Up(first + first, first, norm)
        self.outc = OutConv(first, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip1 = self.inc(x)
        skip2 = self.down1(skip1)
        skip3 = self.down2(skip2)
        skip4 = self.down3(skip3)
        out = self.up1(self.down4(skip4), skip4)
        out = self.up2(out, skip3)
        out = self.up3(out, skip2)
        out = self.outc(self.up4(out, skip1))
        if self.residual:
            out = x + out
        return out


def check_widths(widths) -> tuple:
    """Five widths, or a ValueError that says what is wrong."""
    if len(widths) != 5 or any(width < 1 or width % 2 for width in widths):
        raise ValueError(f"five even widths are needed, not {list(widths)}")
    return tuple(widths)
