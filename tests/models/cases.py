"""The networks of the parity tests: what is exported, and with which arguments."""

from dataclasses import dataclass, field

# Installed without their dependencies, but for what the networks import.
PACKAGES = (
    "monai==1.6.1",
    "dynamic-network-architectures==0.4.4",
    "pytorch3dunet==1.9.6",
    "unet==0.8.1",
    "scikit-image==0.25.2",
    "scipy==1.15.3",
    "lazy-loader==0.4",
    "packaging==25.0",
)
SMALL = [8, 16, 16, 16, 16]


@dataclass(frozen=True)
class Case:
    """One network. `compiles` is what is known of it: a change in either direction is a finding."""

    name: str
    source: tuple[str, str]
    args: dict = field(default_factory=dict)
    channels_in: int = 1
    patch: tuple[int, int, int] = (32, 32, 32)
    take: str | None = None
    compiles: bool = True


def ours(name: str, norm: str) -> Case:
    """The denoiser with one of its norms."""
    return Case(name, ("--model-type", "denoise-net"), {"norm": norm, "widths": SMALL})


def module(name: str, target: str, args: dict | None = None, **more) -> Case:
    """A class by its name."""
    return Case(name, ("--module", target), args or {}, **more)


CASES = (
    ours("denoise-net-batch", "batch"),
    ours("denoise-net-group", "group"),
    module("shared-encoder", "hard:SharedEncoder", {"channels_in": 2}, channels_in=2),
    module("rotary-maps", "hard:RotaryMaps", compiles=False),
    module(
        "monai-unet",
        "monai.networks.nets:UNet",
        {"spatial_dims": 3, "in_channels": 1, "out_channels": 2, "channels": [8, 16, 16], "strides": [2, 2], "num_res_units": 1},
    ),
    module("nnunet-plain", "zoo:plain_conv_unet"),
    module(
        "pytorch3dunet",
        "pytorch3dunet.unet3d.model:UNet3D",
        {"in_channels": 1, "out_channels": 1, "f_maps": [8, 16], "num_groups": 4},
    ),
    module(
        "monai-segresnet",
        "monai.networks.nets:SegResNet",
        {"init_filters": 8, "in_channels": 1, "out_channels": 2, "blocks_down": [1, 1], "blocks_up": [1]},
    ),
    module("fepegar-unet", "zoo:fepegar_unet", compiles=False),
    module("list-of-maps", "hard:ListOfMaps", {"maps": 2}, take="all"),
    module("four-axes", "hard:FourAxes", {"maps": 1}),
)
