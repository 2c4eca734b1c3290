"""Makes the Python environment that reads what haloflow wrote, once, in the user's cache folder; prints its interpreter.

Run with any Python 3.10 or newer that has pip.
"""

import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys

PACKAGES = ("zarr==3.1.5", "tensorstore==0.1.86", "ome-zarr==0.18.0", "jsonschema==4.26.0")
# Without its dependencies, which are heavy: only its copy of the official schemas is used.
ALONE = ("ngff-zarr==0.50.0",)


def folder() -> pathlib.Path:
    """The environment's folder: another list of packages is another environment."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    root = pathlib.Path(cache) if os.path.isabs(cache) else pathlib.Path.home() / ".cache"
    key = hashlib.sha256(repr((PACKAGES, ALONE, sys.version_info[:2])).encode()).hexdigest()
    return root / "haloflow" / f"interop-{key[:16]}"


def make(place: pathlib.Path) -> None:
    """Installs the packages; a marker written last tells a complete environment."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", place], check=True)
    pip = [sys.executable, "-m", "pip", "--python", place / "bin/python", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PACKAGES], check=True, stdout=sys.stderr)
    subprocess.run([*pip, "--no-deps", *ALONE], check=True, stdout=sys.stderr)
    (place / ".complete").touch()


def main() -> None:
    place = folder()
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / ".complete").exists():
            make(place)
    print(place / "bin/python")


if __name__ == "__main__":
    main()
