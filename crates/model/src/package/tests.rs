use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::bundle::tests::bundle;
use crate::checksum::sha256_of_file;

fn wanted() -> Wanted {
    Wanted {
        libtorch: "2.11.0".into(),
        device: "cpu".into(),
        architecture: "AVX512".into(),
        runs_on: |there, here| there == here,
        batch: 2,
        patch: [8, 8, 8],
        kind: Kind::F32,
        mode: CompileMode::ReduceOverhead,
        dynamic: false,
    }
}

fn facts() -> PackageFacts {
    PackageFacts {
        libtorch: "2.11.0+cu130".into(),
        device: "cpu".into(),
        architecture: "AVX512".into(),
        batch: 2,
        patch: [8, 8, 8],
        kind: Kind::F32,
        mode: "default".into(),
        dynamic: false,
        sha256: "00".into(),
        weights_sha256: "w".into(),
    }
}

#[test]
fn whatever_differs_is_told_with_both_sides() {
    assert_eq!(facts().misfit(&wanted(), Some("w")), None);
    let made: [(&str, PackageFacts); 8] = [
        ("was made for libtorch 2.9.1 and 2.11.0 is needed", PackageFacts { libtorch: "2.9.1".into(), ..facts() }),
        ("was made for device cuda and cpu is needed", PackageFacts { device: "cuda".into(), ..facts() }),
        ("was made for sm_90 and this device is AVX512", PackageFacts { architecture: "sm_90".into(), ..facts() }),
        ("was made for patch 8 x 8 x 4 and 8 x 8 x 8 is needed", PackageFacts { patch: [8, 8, 4], ..facts() }),
        ("was made for kind f16 and f32 is needed", PackageFacts { kind: Kind::F16, ..facts() }),
        (
            "was made for mode max-autotune-no-cudagraphs and default is needed",
            PackageFacts { mode: "max-autotune".into(), ..facts() },
        ),
        ("was made for batch 4 and 2 is needed", PackageFacts { batch: 4, ..facts() }),
        ("was made for weights v and w is needed", PackageFacts { weights_sha256: "v".into(), ..facts() }),
    ];
    for (sentence, facts) in made {
        assert_eq!(facts.misfit(&wanted(), Some("w")).as_deref(), Some(sentence));
    }
    let dynamic = PackageFacts { dynamic: true, batch: 0, ..facts() };
    assert_eq!(dynamic.misfit(&Wanted { dynamic: true, batch: 7, ..wanted() }, None), None);
    assert!(dynamic.misfit(&wanted(), None).unwrap().contains("true and false is needed"));
}

#[test]
fn the_key_tells_everything_apart_that_matters() {
    let key = |change: fn(&mut Wanted), weights: &str| {
        let mut wanted = wanted();
        change(&mut wanted);
        wanted.key(weights)
    };
    let same = key(|_| {}, "w");
    assert_eq!(key(|wanted| wanted.mode = CompileMode::Default, "w"), same);
    let changes: [fn(&mut Wanted); 8] = [
        |wanted| wanted.libtorch = "2.12.0".into(),
        |wanted| wanted.device = "cuda:1".into(),
        |wanted| wanted.architecture = "AVX2".into(),
        |wanted| wanted.batch = 3,
        |wanted| wanted.patch = [8, 8, 16],
        |wanted| wanted.kind = Kind::Bf16,
        |wanted| wanted.mode = CompileMode::MaxAutotune,
        |wanted| wanted.dynamic = true,
    ];
    let mut keys: Vec<String> = changes.iter().map(|change| key(*change, "w")).collect();
    keys.extend([same, key(|_| {}, "v")]);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 10);
    assert_eq!(key(|wanted| wanted.device = "cuda:0".into(), "w"), key(|wanted| wanted.device = "cuda:1".into(), "w"));
}

/// An interpreter that writes a package of what it is told, and a line into `made` each time.
fn compiler(folder: &Path) -> Python {
    let (interpreter, made) = (folder.join("python"), folder.join("made"));
    let text = format!(
        r#"#!/bin/bash
echo made >> '{}'
sleep 0.2
for out; do :; done
echo package > "$out"
cat > "${{out%.pt2}}.toml" <<END
libtorch = "2.11.0+cpu"
device = "cpu"
architecture = "AVX512"
batch = 2
patch = [8, 8, 8]
kind = "f32"
mode = "default"
dynamic = false
sha256 = "$(sha256sum "$out" | cut -d' ' -f1)"
weights-sha256 = "w"
END
"#,
        made.display()
    );
    std::fs::write(&interpreter, text).unwrap();
    std::fs::set_permissions(&interpreter, std::fs::Permissions::from_mode(0o755)).unwrap();
    Python::find(Some(&interpreter), Path::new("/")).unwrap()
}

fn times_made(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("made")).unwrap_or_default().lines().count()
}

#[test]
fn two_runs_compile_once_and_what_is_damaged_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    bundle(folder.path(), &[("program.pt2", "p")]);
    let cache = Cache::new(Some(&folder.path().join("cache")), |_| None).unwrap();
    let model = Model::open(folder.path(), &cache).unwrap();
    let python = compiler(folder.path());
    let find = || package_for(&model, &wanted(), &cache, &|| Ok(python.clone()), &mut |_| {});
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| find().unwrap());
        }
    });
    let found = find().unwrap();
    assert_eq!((found.origin, times_made(folder.path())), ("cache", 1));
    std::fs::write(&found.package, "torn").unwrap();
    assert_eq!(find().unwrap(), Found { origin: "compiled", ..found });
    assert_eq!(times_made(folder.path()), 2);
}

#[test]
fn the_models_own_package_needs_no_python() {
    let folder = tempfile::tempdir().unwrap();
    bundle(folder.path(), &[("module.ts", "m"), ("program.pt2", "p")]);
    let weights = sha256_of_file(&folder.path().join("module.ts")).unwrap();
    let compiled = folder.path().join("compiled");
    std::fs::create_dir(&compiled).unwrap();
    std::fs::write(compiled.join("a.pt2"), "package").unwrap();
    let sha256 = sha256_of_file(&compiled.join("a.pt2")).unwrap();
    let facts = PackageFacts { sha256, weights_sha256: weights, ..facts() };
    std::fs::write(compiled.join("a.toml"), toml::to_string(&facts).unwrap()).unwrap();
    let cache = Cache::new(Some(&folder.path().join("cache")), |_| None).unwrap();
    let model = Model::open(folder.path(), &cache).unwrap();
    let no_python = || Err(ModelError::python("no Python here"));
    let find = |wanted: &Wanted| package_for(&model, wanted, &cache, &no_python, &mut |_| {});
    assert_eq!(find(&wanted()).unwrap(), Found { package: compiled.join("a.pt2"), origin: "bundle" });
    assert_eq!(find(&Wanted { batch: 3, ..wanted() }).unwrap_err().message, "no Python here");
}

#[test]
fn a_module_alone_cannot_be_compiled() {
    let folder = tempfile::tempdir().unwrap();
    bundle(folder.path(), &[("module.ts", "m")]);
    let cache = Cache::new(Some(&folder.path().join("cache")), |_| None).unwrap();
    let model = Model::open(folder.path(), &cache).unwrap();
    let error = package_for(&model, &wanted(), &cache, &|| panic!("not asked for"), &mut |_| {}).unwrap_err();
    assert!(error.message.contains("a TorchScript module cannot be compiled"), "{error}");
}
