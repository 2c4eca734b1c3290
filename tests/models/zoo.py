"""Networks of the field's packages whose arguments are classes, which JSON has not."""

from torch import nn


def plain_conv_unet() -> nn.Module:
    """nnU-Net's plain network, of three levels."""
    from dynamic_network_architectures.architectures.unet import PlainConvUNet

    return PlainConvUNet(
        input_channels=1,
        n_stages=3,
        features_per_stage=(8, 16, 16),
        conv_op=nn.Conv3d,
        kernel_sizes=3,
        strides=(1, 2, 2),
        n_conv_per_stage=1,
        num_classes=2,
        n_conv_per_stage_decoder=1,
        conv_bias=True,
        norm_op=nn.InstanceNorm3d,
        norm_op_kwargs={"eps": 1e-5, "affine": True},
        nonlin=nn.LeakyReLU,
        nonlin_kwargs={"inplace": True},
        deep_supervision=False,
    )


def fepegar_unet() -> nn.Module:
    """`unet.UNet3D`, whose export fails with a guard on data."""
    from unet import UNet3D

    return UNet3D(out_classes=2, num_encoding_blocks=2, out_channels_first_layer=4, normalization="batch", padding=True)
