"""Tests of haloflow_models that need no compiler: `python -m unittest tests/models/test_models.py`, with torch 2.11."""

import contextlib
import io
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "crates/engine-torch/python")]

from haloflow_models import outputs, toml_text  # noqa: E402
from haloflow_models.__main__ import main  # noqa: E402
from haloflow_models.denoise_net import DenoiseNet  # noqa: E402
from haloflow_models.failure import Usage  # noqa: E402

WIDTHS = [2, 2, 4, 4, 4]
SHAPE = ["--patch", "32", "32", "16", "--channels-in", "1"]


class Folder(unittest.TestCase):
    """A test with a folder of its own and a way to run a command."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def command(self, *arguments) -> tuple[int, str]:
        """The exit code and what was written on standard error."""
        error = io.StringIO()
        with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
            code = main(list(map(str, arguments)))
        return code, error.getvalue()

    def export_denoiser(self, weights: Path, *more) -> tuple[int, str]:
        """Exports a small denoiser with `weights`."""
        named = ["--model-type", "denoise-net", "--args", f'{{"widths": {WIDTHS}}}', "--weights", weights]
        return self.command("export", *named, *SHAPE, "--out", self.folder / "bundle", *more)

    def saved(self, content) -> Path:
        """A weights file."""
        path = self.folder / "weights.pt"
        torch.save(content, path)
        return path


class Checkpoints(Folder):
    """What a weights file may hold, and how it is refused."""

    def bundle_equals(self, model: torch.nn.Module) -> dict:
        """Checks that the bundle's module gives what the model gives; its description."""
        module = torch.jit.load(self.folder / "bundle/module.ts")
        x = torch.rand(1, 1, 32, 32, 16)
        with torch.no_grad():
            torch.testing.assert_close(module(x), model.eval()(x), rtol=1e-5, atol=1e-6)
        return tomllib.loads((self.folder / "bundle/model.toml").read_text())

    def test_a_bare_state_dict_with_batch_norm(self) -> None:
        model = DenoiseNet("batch", widths=WIDTHS)
        self.assertEqual(self.export_denoiser(self.saved(model.state_dict())), (0, ""))
        found = self.bundle_equals(model)
        self.assertEqual((found["patch"], found["divisible-by"], found["align"]), ([32, 32, 16], [16] * 3, [16] * 3))
        self.assertIn("weights.pt (SHA-256 ", found["source"])
        self.assertTrue(found["export"]["program"])

    def test_a_wrapped_checkpoint_with_group_norm_and_no_residual(self) -> None:
        model = DenoiseNet("group", residual=False, widths=WIDTHS)
        wrapped = {"module." + key: value for key, value in model.state_dict().items()}
        config = {"residual": False, "trilinear": True, "width_multiplier": 1}
        weights = self.saved({"model": wrapped, "transform": {"kind": "asinh", "params": {}}, "model_config": config})
        self.assertEqual(self.export_denoiser(weights), (0, ""))
        self.assertIn("intensity transform (asinh)", self.bundle_equals(model)["description"])

    def test_keys_are_named(self) -> None:
        state = DenoiseNet("batch", widths=WIDTHS).state_dict()
        state["stray.weight"] = state.pop("outc.conv.weight")
        state["outc.conv.bias"] = torch.zeros(2)
        code, error = self.export_denoiser(self.saved(state))
        self.assertEqual(code, 3)
        for part in ("1 missing (outc.conv.weight)", "1 not expected (stray.weight)", "outc.conv.bias [2] for [1]"):
            self.assertIn(part, error)
        self.assertEqual(error.count("\n"), 1)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["weights.pt"])

    def test_what_is_not_known_is_refused_by_name(self) -> None:
        state = DenoiseNet("group", widths=WIDTHS).state_dict()
        for config, word in (({"model": "N2V2UNet"}, "N2V2UNet"), ({"trilinear": False}, "transposed"), ({"odd": 1}, "odd")):
            code, error = self.export_denoiser(self.saved({"model": state, "model_config": config}))
            self.assertEqual(code, 3)
            self.assertIn(word, error)

    def test_a_file_that_runs_code_is_refused(self) -> None:
        code, error = self.export_denoiser(self.saved(DenoiseNet("batch", widths=WIDTHS)))
        self.assertEqual(code, 3)
        self.assertIn("not a checkpoint of tensors", error)

    def test_the_published_size(self) -> None:
        for norm in ("batch", "group"):
            self.assertEqual(sum(p.numel() for p in DenoiseNet(norm).parameters()), 12_946_785)


class Commands(Folder):
    """Command lines, and what they are refused for."""

    def test_usage_is_exit_code_2(self) -> None:
        out = ["--out", self.folder / "b"]
        lines = (
            ["export", *SHAPE, *out],
            ["export", "--model-type", "nothing", *SHAPE, *out],
            ["export", "--module", "hard", *SHAPE, *out],
            ["export", "--model-type", "denoise-net", "--patch", "0", "1", "1", "--channels-in", "1", *out],
            ["compile", "--bundle", self.folder, "--device", "tpu", "--batch", "1", "--patch", "1", "1", "1", "--out", "a.pt2"],
        )
        for line in lines:
            code, error = self.command(*line)
            self.assertEqual((code, error.count("\n")), (2, 1), error)

    def test_what_cannot_be_done_is_exit_code_3(self) -> None:
        out = ["--out", self.folder / "b"]
        lines = (
            (["--module", "no_such_module:Class", *SHAPE], "no_such_module"),
            (["--module", "hard:SharedEncoder", "--args", '{"odd": 1}', *SHAPE], "odd"),
            (["--module", "hard:SharedEncoder", "--patch", "8", "8", "8", "--channels-in", "2"], "[1, 2, 8, 8, 8]"),
            (["--model-type", "denoise-net", "--patch", "24", "32", "32", "--channels-in", "1"], "[24, 32, 32]"),
        )
        for line, word in lines:
            code, error = self.command("export", *line, *out)
            self.assertEqual((code, error.count("\n")), (3, 1), error)
            self.assertIn(word, error)

    def test_a_registry_adds_names(self) -> None:
        registry = self.folder / "models.toml"
        registry.write_text('[mine]\nmodule = "hard:FourAxes"\nargs = { maps = 1, width = 2 }\noutput = "label"\ndivisible-by = [2, 2, 2]\n')
        named = ["export", "--model-type", "mine", "--registry", registry, "--patch", "8", "8", "8", "--channels-in", "1"]
        self.assertEqual(self.command(*named, "--out", self.folder / "b"), (0, ""))
        found = tomllib.loads((self.folder / "b/model.toml").read_text())
        self.assertEqual((found["name"], found["output"], found["channels-out"]), ("mine", "label", 1))
        code, error = self.command(*named, "--out", self.folder / "b")
        self.assertEqual((code, "exists already" in error), (2, True))
        registry.write_text('[mine]\nmodule = "hard:FourAxes"\nodd = 1\n')
        code, error = self.command(*named, "--out", self.folder / "c")
        self.assertEqual((code, "unknown key odd" in error), (2, True))


class Pieces(unittest.TestCase):
    """Small parts."""

    def test_toml_is_read_back(self) -> None:
        document = {"text": 'a "b"\n\\ é \x7f', "list": [1, 2], "float": 1e-7, "one": 1.0, "yes": True, "none": None}
        document |= {"table": {"file.ts": "x", "small": 0.0, "clip": [0.0, 1.0]}}
        wanted = {key: value for key, value in document.items() if value is not None}
        self.assertEqual(tomllib.loads(toml_text.dumps(document)), wanted)

    def test_one_of_several_outputs_must_be_chosen(self) -> None:
        model, x = torch.nn.Identity(), torch.zeros(1, 1, 2, 2, 2)
        for output, take in (([x, x], None), ([x, x], "2"), ({"a": x, "b": x}, None), (x, "0")):
            with self.assertRaises(Usage):
                outputs.one_tensor(model, output, take)
        self.assertIs(outputs.one_tensor(model, x, None), model)
        self.assertEqual(outputs.one_tensor(model, (x, x), None).index, 0)
        self.assertEqual(outputs.one_tensor(model, {"a": x}, None).key, "a")


if __name__ == "__main__":
    unittest.main()
