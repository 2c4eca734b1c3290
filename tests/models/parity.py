"""Exports and compiles the networks of cases.py, and writes what eager Python gives, for the parity tests in Rust.

    parity.py DIR [NAME ...]

Each case has a folder DIR/NAME with `bundle/`, `bundle/compiled/cpu.pt2` where the network compiles, `input.f32` and
`eager.f32` (row, channel, z, y, x; little-endian), and `case.toml`, written last. A case whose `case.toml` names the present
digest of its sources is left as it is.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from cases import CASES, PACKAGES, Case

HERE = Path(__file__).resolve().parent
OURS = HERE.parents[1] / "crates/engine-torch/python"
ROWS = 2
WORKERS = 2


def main() -> int:
    """Brings every case up to date, two at a time; the exit code is 1 if one is not as expected. One process at a time."""
    out, names = Path(sys.argv[1]).resolve(), sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return bring_up_to_date(out, names)


def bring_up_to_date(out: Path, names: list[str]) -> int:
    """The same, the lock being held."""
    chosen = [case for case in CASES if not names or case.name in names]
    stale = [case for case in chosen if not fresh(out / case.name, case)]
    environment = installed(cache() / "model-zoo") if stale else {}
    with ThreadPoolExecutor(WORKERS) as pool:
        done = dict(zip((case.name for case in stale), pool.map(lambda case: make(out, case, environment), stale)))
    results = [done.get(case.name) or report(out, case, "kept") for case in chosen]
    print("\n".join(line for line, _ in results))
    return 0 if all(good for _, good in results) else 1


def cache() -> Path:
    """The folder of what may be fetched again."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "haloflow"


def digest(case: Case) -> str:
    """A digest of all that a case's files depend on."""
    made_by = ["cases.py", "hard.py", "one.py", "parity.py", "zoo.py"]
    sources = [*(HERE / name for name in made_by), *sorted(OURS.rglob("*.py"))]
    parts = [repr(case), repr(PACKAGES), version("torch"), cpu(), *(path.read_text() for path in sources)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def cpu() -> str:
    """The processor's instructions: a package is made for them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith("flags")), "")


def fresh(folder: Path, case: Case) -> bool:
    """Whether the case's files were made from the present sources."""
    try:
        return tomllib.loads((folder / "case.toml").read_text()).get("digest") == digest(case)
    except (OSError, ValueError):
        return False


def installed(folder: Path) -> dict:
    """The environment with the field's packages, which are installed if they are not there."""
    mark, wanted = folder / "packages.txt", "\n".join(PACKAGES)
    if not mark.is_file() or mark.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        pip = ["python3", "-m", "pip", "--python", sys.executable, "install", "--quiet", "--no-deps", "--target", str(folder)]
        subprocess.run([*pip, *PACKAGES], check=True)
        mark.write_text(wanted)
    path = os.pathsep.join(map(str, (OURS, HERE, folder)))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def make(out: Path, case: Case, environment: dict) -> tuple[str, bool]:
    """Makes one case in a process of its own."""
    folder, started = out / case.name, time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, str(HERE / "one.py"), str(folder), case.name, digest(case)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        return f"{case.name}: failed: {done.stderr.strip().splitlines()[-1:]}", False
    return report(out, case, f"made in {time.monotonic() - started:.0f} s")


def report(out: Path, case: Case, how: str) -> tuple[str, bool]:
    """A line about a case, and whether it compiled exactly if it should."""
    found = tomllib.loads((out / case.name / "case.toml").read_text())
    compiled = "compiled" if found["compiled"] else f"not compiled ({found['reason']})"
    expected = found["compiled"] == case.compiles
    mark = "" if expected else ", which was NOT expected"
    return f"{case.name}: {found['how']}, {compiled}{mark}; {how}", expected


if __name__ == "__main__":
    sys.exit(main())
