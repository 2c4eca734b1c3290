"""Tests of the command `compile` with a compiler that only writes a file: what is left behind, and what is told."""

import contextlib
import io
import os
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock

import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "crates/engine-torch/python")]

from haloflow_models import package  # noqa: E402
from haloflow_models.__main__ import main  # noqa: E402

SHAPE = ["--patch", "4", "4", "4"]
# A trial that gives what the program gave: the network doubles its input.
DOUBLED = "import sys, numpy; (2 * numpy.fromfile(sys.argv[-3], numpy.float32)).tofile(sys.argv[-1])"


class Doubled(torch.nn.Module):
    """Twice the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def command(*arguments) -> tuple[int, str]:
    """The exit code and what was written on standard error."""
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        code = main(list(map(str, arguments)))
    return code, error.getvalue()


def compiler(seen: list[Path]):
    """A compiler that notes where it writes to."""

    def compile_and_package(exported, *, package_path, inductor_configs):
        seen.append(Path(package_path))
        Path(package_path).write_bytes(b"native code")

    return mock.patch("torch._inductor.aoti_compile_and_package", compile_and_package)


def trial(code: str):
    """Runs this instead of the package."""
    return mock.patch.object(package, "trial_command", lambda words: [sys.executable, "-c", code, *words])


class Compile(unittest.TestCase):
    """A bundle that is compiled."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.bundle, self.out = self.folder / "bundle", self.folder / "made" / "net.cuda.pt2"
        named = ["--module", "test_compile:Doubled", "--channels-in", "1", *SHAPE, "--divisible-by", "4", "4", "4"]
        self.assertEqual(command("export", *named, "--out", self.bundle), (0, ""))

    def compile(self, *more) -> tuple[int, str]:
        """Compiles the bundle for two rows on the CPU."""
        return command("compile", "--bundle", self.bundle, "--device", "cpu", "--batch", 2, *SHAPE, "--out", self.out, *more)

    def left(self) -> list[str]:
        """The names in the folder of the package."""
        return sorted(path.name for path in self.out.parent.iterdir())

    def test_a_package_appears_with_its_facts_under_the_name_that_was_asked_for(self) -> None:
        seen = []
        with compiler(seen), trial(DOUBLED):
            self.assertEqual(self.compile(), (0, ""))
        self.assertEqual(self.left(), ["net.cuda.pt2", "net.cuda.toml"])
        facts = tomllib.loads((self.folder / "made/net.cuda.toml").read_text())
        self.assertEqual((facts["batch"], facts["patch"], facts["kind"]), (2, [4, 4, 4], "f32"))
        # The compiler wrote beside it, to a name of this process with one suffix.
        self.assertEqual((seen[0].parent, seen[0].name.count(".pt2")), (self.out.parent, 1))
        self.assertIn(f".{os.getpid()}-", seen[0].name)

    def test_whatever_the_trial_ends_with_is_told_and_nothing_stays(self) -> None:
        for code, told in (
            ("import os; os.kill(os.getpid(), 11)", "running it ended with SIGSEGV"),
            ("import sys; sys.exit('no kernel image')", "does not run: no kernel image"),
            (DOUBLED.replace("2 *", "3 *"), "differs from the program's by 5.0e-01"),
            (DOUBLED.replace("2 *", "float('nan') *"), "differs from the program's by nan"),
        ):
            with compiler([]), trial(code):
                status, error = self.compile()
            self.assertEqual((status, error.count("\n"), self.left()), (3, 1, []), error)
            self.assertIn(told, error)

    def test_the_program_that_asks_for_a_package_tries_it(self) -> None:
        with mock.patch.dict(os.environ, HALOFLOW_TRIAL="/bin/haloflow"):
            self.assertEqual(package.trial_command(["a.pt2", "--rows", "2"]), ["/bin/haloflow", "model", "trial", "a.pt2", "--rows", "2"])

    def test_a_file_that_is_no_package_does_not_pass_the_real_trial(self) -> None:
        with compiler([]):
            status, error = self.compile()
        self.assertEqual((status, error.count("\n"), self.left()), (3, 1, []), error)
        self.assertIn("the package was compiled and does not run", error)

    def test_a_compiler_that_fails_leaves_nothing(self) -> None:
        with mock.patch("torch._inductor.aoti_compile_and_package", side_effect=RuntimeError("no compiler on this machine")):
            status, error = self.compile()
        self.assertEqual((status, self.left()), (3, []))
        self.assertIn("cannot be compiled for cpu: no compiler on this machine", error)

    def test_a_program_that_somebody_else_exported(self) -> None:
        model = torch.export.export(Doubled(), (torch.zeros(2, 1, 4, 4, 4),))
        torch.export.save(model, self.bundle / package.bundle.PROGRAM)
        sums = {name: package.bundle.sha256(self.bundle / name) for name in (package.bundle.PROGRAM,)}
        (self.bundle / "model.toml").write_text(package.toml_text.dumps({"name": "theirs", "files": sums}))
        with compiler([]), trial(DOUBLED):
            self.assertEqual(self.compile(), (0, ""))
            status, error = self.compile("--batch", 3)
        self.assertEqual((status, error.count("\n")), (3, 1), error)
        self.assertIn("batch 3 of patch [4, 4, 4] in f32; it was exported with [2, 1, 4, 4, 4]", error)


if __name__ == "__main__":
    unittest.main()
