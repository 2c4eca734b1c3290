//! Networks of the field, exported and compiled by Python, run here: both forms give what eager Python gives.
//!
//! The set-up's Python makes them the first time, a minute or more, and keeps them in the user's cache; `tests/models/cases.py`
//! lists them.
#![expect(clippy::unwrap_used, reason = "a test may stop on what it did not expect")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use haloflow_engine::fake::{read_elements, write_elements};
use haloflow_engine::{ElementKind, EngineFactory};
use haloflow_engine_torch::{CompiledForm, TorchDevice, TorchFactory, TorchOptions};
use haloflow_model::Cache;

/// The largest difference that is allowed, relative to eager's largest value.
const TOLERANCE: f32 = 1e-5;

/// What is known of a case: `case.toml`.
struct Case {
    folder: PathBuf,
    facts: toml::Table,
}

impl Case {
    fn open(folder: PathBuf) -> Self {
        let facts = std::fs::read_to_string(folder.join("case.toml")).unwrap().parse().unwrap();
        Self { folder, facts }
    }

    fn number(&self, key: &str) -> usize {
        self.facts[key].as_integer().unwrap().try_into().unwrap()
    }

    fn patch(&self) -> [usize; 3] {
        let sides = self.facts["patch"].as_array().unwrap().iter();
        let sides: Vec<usize> = sides.map(|side| side.as_integer().unwrap().try_into().unwrap()).collect();
        sides.try_into().unwrap()
    }

    fn voxels(&self, name: &str) -> Vec<f32> {
        read_elements(ElementKind::F32, &std::fs::read(self.folder.join(name)).unwrap())
    }

    fn options(&self, compiled: Option<CompiledForm>) -> TorchOptions {
        let (module, rows) = (self.folder.join("bundle/module.ts"), self.number("rows"));
        TorchOptions {
            compiled,
            channels_in: self.number("channels-in"),
            pad_short: true,
            intra_op_threads: 2,
            ..TorchOptions::new(module, TorchDevice::Cpu, rows, self.patch())
        }
    }

    /// What the engine calls itself, and how far its output is from eager's, relative to eager's largest value.
    fn run(&self, compiled: Option<CompiledForm>) -> (String, f32) {
        let mut engine = Box::new(TorchFactory::new(self.options(compiled))).make().unwrap();
        let mut slot = engine.allocate().unwrap();
        write_elements(ElementKind::F32, &self.voxels("input.f32"), slot.input.bytes_mut());
        let slot = engine.submit(slot, self.number("rows")).unwrap().wait().unwrap();
        let (given, eager) = (read_elements(ElementKind::F32, slot.output.bytes()), self.voxels("eager.f32"));
        assert_eq!(given.len(), eager.len(), "{}", self.folder.display());
        let largest = eager.iter().fold(0.0_f32, |largest, y| largest.max(y.abs()));
        assert!(largest > 0.0, "eager's output is all zero and compares with nothing");
        // A NaN would be lost in a maximum.
        assert!(given.iter().all(|y| y.is_finite()), "{}", self.folder.display());
        let apart = given.iter().zip(&eager).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        (engine.describe(), apart / largest)
    }
}

/// Has Python bring the cases up to date; gives their folders.
fn made() -> Vec<PathBuf> {
    let user = Cache::new(None, |name| std::env::var_os(name)).unwrap();
    let (python, out) = (user.folder().join("torch-2.11.0/bin/python"), user.folder().join("parity"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models/parity.py");
    let done = Command::new(python).arg(script).arg(&out).output().unwrap();
    let told = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{told}{}", String::from_utf8_lossy(&done.stderr));
    told.lines().map(|line| out.join(line.split(':').next().unwrap())).collect()
}

/// Told past the test's harness, which keeps to itself what a test prints that goes well.
fn tell(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[test]
fn both_forms_of_every_architecture_give_what_eager_python_gives() {
    let folders = made();
    assert!(folders.len() >= 8, "{folders:?}");
    for folder in folders {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let case = Case::open(folder);
        let check = |form: &str, apart: f32| {
            tell(&format!("{name}, {form}: {apart:.1e} from eager Python"));
            assert!(apart <= TOLERANCE, "{name}, {form}: {apart}");
        };
        let (description, apart) = case.run(None);
        assert!(description.starts_with("TorchScript, f32"), "{description}");
        check("TorchScript", apart);
        if case.facts["compiled"].as_bool().unwrap() {
            let package = Ok(case.folder.join("bundle/compiled/cpu.pt2"));
            let (description, apart) = case.run(Some(CompiledForm { package, required: true }));
            assert!(description.starts_with("AOTInductor package, f32"), "{description}");
            check("compiled", apart);
        } else {
            let reason = case.facts["reason"].as_str().unwrap().to_owned();
            tell(&format!("{name}, compiled: there is no program: {reason}"));
            let (description, apart) = case.run(Some(CompiledForm { package: Err(reason.clone()), required: false }));
            assert!(description.starts_with(&format!("TorchScript (not compiled: {reason})")), "{description}");
            check("fallen back", apart);
        }
    }
}
