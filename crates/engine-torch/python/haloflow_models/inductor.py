"""Options of the compiler, and the two places where its choices for the CPU are wrong for 3-D networks."""

import contextlib

import torch._inductor.decomposition as decomposition
import torch._inductor.fx_passes.mkldnn_fusion as fusion


def options(device: str, mode: str) -> dict:
    """The compiler's options. CUDA graphs are never part of a package: who loads it captures them."""
    # A batch that may change may also be of one row, which the compiler takes for too few.
    found = {"triton.cudagraphs": False, "aot_inductor.check_lowerbound": False}
    if mode.startswith("max-autotune"):
        found |= {"max_autotune": True, "coordinate_descent_tuning": device != "cpu"}
    if device == "cpu":
        # Weights become constants: batch normalisation is folded into the convolutions, which get their weights packed,
        # fuse the activation and pass channels-last tensors on. Most of the gain on a CPU is this.
        found["freezing"] = True
    return found


@contextlib.contextmanager
def cpu_choices():
    """Within it the compiler leaves alone what it makes worse on a CPU.

    Trilinear upsampling stays libtorch's own kernel: written out, it gathers voxel by voxel, across the channels.
    A convolution is not fused with the addition after it: with one channel out, oneDNN refuses the fused form at run time.
    """
    table = decomposition.decompositions
    upsampling = {op: rule for op, rule in table.items() if "upsample_trilinear3d" in str(op)}
    fusions = {name: getattr(fusion, name) for name in ("_register_binary_fusion", "_register_binary_unary_fusion")}
    try:
        for op in upsampling:
            del table[op]
        for name in fusions:
            setattr(fusion, name, lambda: None)
        yield
    finally:
        table.update(upsampling)
        for name, function in fusions.items():
            setattr(fusion, name, function)
