"""Tests of the rewriting of convolutions: that it changes nothing but rounding, and what it leaves alone."""

import itertools
import sys
import unittest
from argparse import Namespace
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "crates/engine-torch/python"))

from haloflow_models import forms, package, winograd  # noqa: E402
from haloflow_models.failure import Cannot  # noqa: E402

TOLERANCE = 1e-5
SHAPES = ({0: Dim("batch", min=1, max=64)},)


def convolution(*channels: int, **more) -> nn.Conv3d:
    """A convolution that is rewritten, if nothing else is said."""
    return nn.Conv3d(*channels, **{"kernel_size": 3, "padding": 1} | more)


def with_statistics(network: nn.Module) -> nn.Module:
    """The network with every number of its normalisations different from what they start as."""
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm3d):
            for values in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
                if values is not None:
                    nn.init.uniform_(values, 0.5, 2)
    return network.eval()


def rewritten(network: nn.Module, depth: int, channels: int = 32, kind: torch.dtype = torch.float32) -> nn.Module:
    """The network exported for any number of rows, and rewritten."""
    return winograd.rewritten(forms.export(network.to(kind), torch.rand(2, channels, depth, 6, 5, dtype=kind), SHAPES))


def replaced(module: nn.Module | None) -> int:
    """How many convolutions are of the other kind."""
    return 0 if module is None else sum(isinstance(layer, winograd.Winograd) for layer in module.modules())


def request_for(device: str, kind: str) -> Namespace:
    """What a package is asked for."""
    return Namespace(device=device, kind=kind, batch=2, patch=[8, 6, 5], dynamic=False)


def targets(module: nn.Module) -> list[str]:
    """The operations that are left in the graph."""
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


class Winograd(unittest.TestCase):
    """Convolutions that may be rewritten, and others."""

    def setUp(self) -> None:
        torch.manual_seed(0)
        gradients = torch.no_grad()
        gradients.__enter__()
        self.addCleanup(gradients.__exit__, None, None, None)

    def assert_equal(self, network: nn.Module, depth: int, convolutions: int = 1, channels: int = 32) -> nn.Module:
        """So many convolutions are replaced, and one and three rows give what they gave, after another export too."""
        module = rewritten(network, depth, channels)
        self.assertEqual(replaced(module), convolutions)
        again = forms.export(module, torch.rand(2, channels, depth, 6, 5), SHAPES).module()
        for run, rows in itertools.product((module, again), (1, 3)):
            x = torch.randn(rows, channels, depth, 6, 5)
            wanted = network(x)
            self.assertEqual(run(x).shape, wanted.shape)
            self.assertLess((run(x) - wanted).abs().max() / wanted.abs().max(), TOLERANCE)
        return module

    def test_any_depth_and_a_bias_or_none_give_the_same(self) -> None:
        for depth, bias in itertools.product((8, 9, 10, 11, 12, 17), (True, False)):
            with self.subTest(depth=depth, bias=bias):
                self.assert_equal(convolution(32, 40, bias=bias), depth)

    def test_many_channels_give_the_same(self) -> None:
        self.assert_equal(convolution(512, 256), 8, channels=512)

    def test_a_normalisation_is_folded_in_with_or_without_its_own_weights(self) -> None:
        for affine, bias in itertools.product((True, False), repeat=2):
            layers = (convolution(32, 48, bias=bias), nn.BatchNorm3d(48, affine=affine), nn.LeakyReLU(inplace=True))
            network = nn.Sequential(*layers)
            with self.subTest(affine=affine, bias=bias):
                module = self.assert_equal(with_statistics(network), 9)
                self.assertEqual(targets(module), ["aten.leaky_relu_.default"])

    def test_a_normalisation_of_the_batch_itself_stays(self) -> None:
        network = nn.Sequential(convolution(32, 32), nn.BatchNorm3d(32, track_running_stats=False)).eval()
        self.assertIn("aten.batch_norm.default", targets(self.assert_equal(network, 8)))

    def test_a_convolution_whose_own_output_is_used_too_keeps_it(self) -> None:
        class Twice(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.convolution, self.norm = convolution(32, 32), nn.BatchNorm3d(32)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                y = self.convolution(x)
                return y * self.norm(y)

        self.assertIn("aten.batch_norm.default", targets(self.assert_equal(with_statistics(Twice()), 8)))

    def test_convolutions_in_a_row_and_one_that_is_used_twice(self) -> None:
        shared = convolution(32, 32)
        network = nn.Sequential(shared, nn.ReLU(), shared, nn.GroupNorm(4, 32), convolution(32, 1))
        self.assert_equal(network, 8, convolutions=2)

    def test_others_are_left_alone(self) -> None:
        for network, depth, channels in (
            (convolution(32, 32, stride=2), 16, 32),
            (convolution(32, 32, stride=(1, 1, 2)), 16, 32),
            (convolution(32, 32, kernel_size=1, padding=0), 8, 32),
            (convolution(32, 32, kernel_size=(3, 3, 1), padding=(1, 1, 0)), 8, 32),
            (convolution(32, 32, kernel_size=5, padding=1), 8, 32),
            (convolution(32, 32, padding=0), 8, 32),
            (convolution(32, 32, padding=2, dilation=2), 8, 32),
            (convolution(32, 32, padding=1, dilation=2), 8, 32),
            (convolution(64, 64, groups=2), 8, 64),
            (convolution(32, 16), 8, 32),
            (convolution(16, 32), 8, 16),
            (convolution(32, 32), 7, 32),
        ):
            with self.subTest(network=network, depth=depth):
                self.assertEqual(replaced(rewritten(network, depth, channels)), 0)
        without_rows = forms.export(convolution(32, 32), torch.rand(32, 8, 9, 9), None)
        self.assertIsNone(winograd.rewritten(without_rows))

    def test_only_f32_on_a_cpu_is_rewritten(self) -> None:
        network = convolution(32, 32)
        cases = ("cpu", "f32", 6), ("cpu", "f16", 0), ("cpu", "bf16", 0), ("cuda:0", "f32", 0)
        for device, kind, convolutions in cases:
            example = torch.rand(2, 32, 8, 6, 5).to(package.KINDS[kind])
            exported = forms.export(network.to(example.dtype), example, None)
            made = package.with_fewer_multiplications(exported, example, request_for(device, kind))
            found = sum("conv2d" in str(node.target) for node in made.graph.nodes) if made else 0
            self.assertEqual(found, convolutions, (device, kind))

    def test_what_a_convolution_reads_may_be_changed_after_it(self) -> None:
        class Changed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.convolution, self.norm = convolution(32, 32), nn.BatchNorm3d(32)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                x = x + 1
                y = self.convolution(x)
                x.relu_()
                return self.norm(y)

        network, x = with_statistics(Changed()), torch.randn(2, 32, 8, 6, 5) - 1
        module = winograd.rewritten(forms.export(network, x, None))
        self.assertEqual(replaced(module), 1)
        self.assertLess((module(x) - network(x)).abs().max() / network(x).abs().max(), TOLERANCE)

    def test_a_normalisation_with_computed_weights_stays(self) -> None:
        class Computed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.convolution, self.norm = convolution(32, 32), nn.BatchNorm3d(32)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                norm = self.norm
                y = self.convolution(x)
                return F.batch_norm(y, norm.running_mean, norm.running_var, norm.weight + 1, norm.bias)

        self.assertIn("aten.batch_norm.default", targets(self.assert_equal(with_statistics(Computed()), 8)))

    def test_a_form_that_does_not_work_gives_way_to_the_program(self) -> None:
        class Viewed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.convolution = convolution(32, 32)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return F.relu(self.convolution(x)).view(x.shape[0], 32, -1)

        example = torch.rand(2, 32, 8, 6, 5)
        for network, refused, tried in (
            (Viewed(), None, 1),
            (convolution(32, 32), Cannot("too far from the program"), 2),
            (convolution(32, 32), None, 1),
        ):
            exported = forms.export(network, example, None)
            with (
                mock.patch.object(package, "compile_to") as compiled,
                mock.patch.object(package, "check", side_effect=[refused or 1e-6, 2e-6]),
                mock.patch.object(package, "say"),
            ):
                difference = package.compiled(Path("package.pt2"), exported, example, request_for("cpu", "f32"))
            made = [call.args[1] for call in compiled.call_args_list]
            self.assertEqual((len(made), difference), (tried, 2e-6 if refused else 1e-6))
            self.assertEqual(made[-1] is exported, refused is not None or isinstance(network, Viewed))


if __name__ == "__main__":
    unittest.main()
