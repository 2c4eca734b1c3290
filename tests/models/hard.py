"""Networks that are hard to export, as users have them: small, with random weights. See parity.py."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RotaryAttention(nn.Module):
    """Self-attention over tokens whose queries and keys are turned by their positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, tokens: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        rows, length, width = tokens.shape
        qkv = self.qkv(tokens).view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = qkv[0], qkv[1], qkv[2]
        query, key = turned(query, cosine, sine), turned(key, cosine, sine)
        attended = F.scaled_dot_product_attention(query, key, value)
        return self.out(attended.permute(0, 2, 1, 3).reshape(rows, length, width))


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turns pairs of components, the halves of the last axis, by their angles."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = RotaryAttention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.before(tokens), cosine, sine)
        return tokens + self.mlp(self.after(tokens))


class RotaryEncoder(nn.Module):
    """A masked autoencoder's encoder with rotary positions in three axes, as the proteomics models have.

    The two habits that break scripting and exporting are kept: the base of the frequencies is a parameter that `forward`
    turns into a Python number, and the positions come from a NumPy array that it indexes with numbers out of a tensor.
    """

    def __init__(self, channels_in: int = 1, side: int = 8, width: int = 24, heads: int = 2, depth: int = 2) -> None:
        super().__init__()
        self.side, self.width, self.heads = side, width, heads
        self.embed = nn.Conv3d(channels_in, width, kernel_size=side, stride=side)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.base = nn.Parameter(torch.tensor(100.0), requires_grad=False)
        self.register_buffer("axes", torch.arange(3))
        self.positions = np.stack(np.meshgrid(*[np.arange(64.0)] * 3, indexing="ij"))

    def angles(self, features: Tensor) -> Tensor:
        """The angle of each token for each pair of components."""
        base = float(self.base)
        pairs = self.width // self.heads // 6
        frequencies = base ** (-np.arange(pairs) / pairs)
        z, y, x = features.shape[2:]
        along = [self.positions[int(axis)][:z, :y, :x].reshape(-1, 1) * frequencies for axis in self.axes]
        return torch.from_numpy(np.concatenate(along, axis=1)).to(self.embed.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        features = self.embed(x)
        angles = self.angles(features).to(x.device)
        tokens = features.flatten(2).transpose(1, 2)
        for block in self.blocks:
            tokens = block(tokens, angles.cos(), angles.sin())
        return self.norm(tokens).transpose(1, 2).reshape(features.shape)


class RotaryMaps(nn.Module):
    """The encoder with one decoder head for each probability map."""

    def __init__(self, maps: int = 3, side: int = 8, width: int = 24) -> None:
        super().__init__()
        self.encoder = RotaryEncoder(side=side, width=width)
        self.heads = nn.ModuleList(nn.ConvTranspose3d(width, 1, kernel_size=side, stride=side) for _ in range(maps))

    def forward(self, x: Tensor) -> Tensor:
        latent = self.encoder(x)
        maps = torch.stack([head(latent) for head in self.heads], dim=1).squeeze(2)
        return torch.sigmoid(maps).clamp(0.01, 0.99)


class Encoder(nn.Module):
    """Two levels of convolutions."""

    def __init__(self, channels_in: int, width: int) -> None:
        super().__init__()
        self.fine = nn.Sequential(nn.Conv3d(channels_in, width, 3, padding=1), nn.InstanceNorm3d(width, affine=True), nn.ReLU())
        self.coarse = nn.Sequential(nn.Conv3d(width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm3d(2 * width), nn.ReLU())

    def forward(self, x: Tensor) -> list[Tensor]:
        fine = self.fine(x)
        return [fine, self.coarse(fine)]


class Decoder(nn.Module):
    """One decoder head: `(batch, 1, z, y, x)`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose3d(2 * width, width, 2, stride=2)
        self.out = nn.Conv3d(2 * width, 1, 3, padding=1)

    def forward(self, features: list[Tensor]) -> Tensor:
        return self.out(torch.cat([features[0], self.up(features[1])], dim=1))


class ListOfMaps(nn.Module):
    """A shared encoder and several decoders, whose maps come as a list."""

    def __init__(self, maps: int = 3, channels_in: int = 1, width: int = 8) -> None:
        super().__init__()
        self.encoder = Encoder(channels_in, width)
        self.decoders = nn.ModuleList(Decoder(width) for _ in range(maps))

    def forward(self, x: Tensor) -> list[Tensor]:
        features = self.encoder(x)
        return [decoder(features) for decoder in self.decoders]


class SharedEncoder(ListOfMaps):
    """The same with the maps as channels: `(batch, maps, z, y, x)`."""

    def forward(self, x: Tensor) -> Tensor:
        features = self.encoder(x)
        return torch.sigmoid(torch.cat([decoder(features) for decoder in self.decoders], dim=1))


class FourAxes(ListOfMaps):
    """The same with the first map only, and without an axis for channels: `(batch, z, y, x)`."""

    def forward(self, x: Tensor) -> Tensor:
        features = self.encoder(x)
        return [decoder(features) for decoder in self.decoders][0].squeeze(1)
