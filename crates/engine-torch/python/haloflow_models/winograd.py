"""Convolutions of 3 x 3 x 3 with half of the multiplications: Winograd's minimal filtering along z.

Four neighbouring planes of the result depend on six planes. They take six convolutions of 3 x 3 over sums of those six,
where they would take twelve over the planes themselves: F(4, 3) of Lavin and Gray, "Fast Algorithms for Convolutional
Neural Networks" (2016), along one axis. Along z whole planes are added, which costs little beside the convolutions.

Rewritten are convolutions with stride 1, a border of one voxel and enough channels and planes, in f32 on a CPU: there
they wait for the multiplications. f16 and bf16 would lose too many digits in the sums.
"""

import operator

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.nn.utils.fusion import fuse_conv_bn_weights

CONVOLUTION = torch.ops.aten.conv3d.default
NORMALISATION = torch.ops.aten.batch_norm.default
# With fewer channels or planes the sums cost more than they save.
FEWEST_CHANNELS = 32
FEWEST_PLANES = 8

# Planes of the result that are made together, and planes that they depend on.
MADE, READ = 4, 6
# Each row is one sum: of planes read, of planes of the weight, of planes convolved. The paper calls them B transposed,
# G and A transposed.
OF_READ = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
OF_WEIGHT = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
OF_CONVOLVED = (
    (1, 1, 1, 1, 1, 0),
    (0, 1, -1, 2, -2, 0),
    (0, 1, 1, 4, 4, 0),
    (0, 1, -1, 8, -8, 1),
)


class Winograd(nn.Module):
    """A convolution of 3 x 3 x 3 with stride 1 and a border of zeros of one voxel."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        sums = torch.tensor(OF_WEIGHT, dtype=torch.float64)
        weights = torch.einsum("sz,oizyx->soiyx", sums, weight.double()).to(weight.dtype)
        self.weights = nn.ParameterList([nn.Parameter(weight.contiguous(), requires_grad=False) for weight in weights])
        self.bias = None if bias is None else nn.Parameter(bias[:, None, None], requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, channels, depth, height, width = x.shape
        groups = -(-depth // MADE)
        # The border, and planes that fill the last group.
        x = F.pad(x, (0, 0, 0, 0, 1, 1 + groups * MADE - depth))
        read = [x[:, :, first : first + MADE * (groups - 1) + 1 : MADE] for first in range(READ)]
        convolved = []
        for factors, weight in zip(OF_READ, self.weights):
            # Groups are rows of a batch of planes.
            planes = weighted(factors, read).transpose(1, 2).reshape(rows * groups, channels, height, width)
            convolved.append(F.conv2d(planes, weight, padding=1))
        made = [weighted(factors, convolved) for factors in OF_CONVOLVED]
        if self.bias is not None:
            made = [planes + self.bias for planes in made]
        made = [planes.reshape(rows, groups, -1, height, width) for planes in made]
        made = torch.stack(made, dim=2).reshape(rows, groups * MADE, -1, height, width).transpose(1, 2)
        return made[:, :, :depth]


def weighted(factors: tuple, tensors: list[Tensor]) -> Tensor:
    """The sum of the tensors, each times its factor."""
    terms = [tensor if factor == 1 else factor * tensor for factor, tensor in zip(factors, tensors) if factor != 0]
    return sum(terms[1:], start=terms[0])


def rewritten(exported: ExportedProgram) -> nn.Module | None:
    """The program as a module whose convolutions that gain are of this kind, the normalisation after them folded in; nothing if none gains.

    What comes after a convolution may ask for more than its values, such as a layout of memory that these do not have: it
    has to be tried.
    """
    module = exported.module()
    gaining = [node for node in module.graph.nodes if node.target == CONVOLUTION and gains(node)]
    if not gaining:
        return None
    for index, node in enumerate(gaining):
        replace(module, node, f"winograd_{index}")
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def gains(node: fx.Node) -> bool:
    """Whether the convolution may be rewritten, and has the channels and planes that make it faster then."""
    given = arguments(node)
    ones = all(set(given[name]) == {1} for name in ("stride", "padding", "dilation"))
    weight, x = given["weight"].meta["val"], given["input"].meta["val"]
    if not (constant(given, ("weight", "bias")) and ones and given["groups"] == 1 and node.users):
        return False
    if x.dim() != 5 or weight.dtype != torch.float32 or tuple(weight.shape[2:]) != (3, 3, 3):
        return False
    return min(weight.shape[:2]) >= FEWEST_CHANNELS and x.shape[2] >= FEWEST_PLANES


def constant(given: dict, names: tuple) -> bool:
    """Whether these arguments are left out, or parameters or buffers as they are."""
    return all(given[name] is None or given[name].op == "get_attr" for name in names)


def replace(module: fx.GraphModule, node: fx.Node, name: str) -> None:
    """Puts the same convolution of this kind in the place of one, and of the normalisation if one follows."""
    given = arguments(node)
    weight, bias = tensor(module, given["weight"]), tensor(module, given["bias"])
    last, names = next(iter(node.users)), ("weight", "bias", "running_mean", "running_var")
    norm = arguments(last) if len(node.users) == 1 and last.target == NORMALISATION else None
    if norm and not norm["training"] and constant(norm, names):
        scale, shift, mean, variance = (tensor(module, norm[name]) for name in names)
        weight, bias = fuse_conv_bn_weights(weight, bias, mean, variance, norm["eps"], scale, shift)
    else:
        last = node
    module.add_submodule(name, Winograd(weight, bias))
    # Right after the convolution, since what it reads may be changed in place later.
    with module.graph.inserting_after(node):
        last.replace_all_uses_with(module.graph.call_module(name, (given["input"],)))


def arguments(node: fx.Node) -> dict:
    """The arguments of a node by their names, with the values of those that are left out."""
    schema = node.target._schema.arguments
    given = {argument.name: argument.default_value for argument in schema}
    return given | {argument.name: value for argument, value in zip(schema, node.args)} | node.kwargs


def tensor(module: nn.Module, node: fx.Node | None) -> Tensor | None:
    """The parameter or buffer that a node names."""
    return None if node is None else operator.attrgetter(node.target)(module).detach()
