//! The files for array engines under `config/`: valid by the schemas of those that read them, and of keys that haloflow has.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use haloflow_tests::binary::{self, Haloflow};
use haloflow_tests::golden_model;
use haloflow_tests::held_web::HeldWeb;
use haloflow_tests::readback::read_u16;
use haloflow_tests::scene::{SHAPE, Scene, noisy};
use serde_json::{Value, json};

use crate::interop::{python, well};

fn config() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config")
}

/// The files as JSON; the schemas have been checked.
fn manifests() -> Value {
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/check.py");
    let told = well(python("manifests").arg(check).arg(config()));
    serde_json::from_slice(&told.stdout).unwrap()
}

/// A file of keys for a small volume in the scene, read from `input`.
fn run_toml(scene: &Scene, input: &str) -> PathBuf {
    let text = format!(
        "in = '{input}'\nout = '{}'\nmodel = '{}'\ndevices = 'cpu'\npatch = 16\noverlap = 4\ntrim-voxels = 2\nnormalize = false\n",
        scene.path("out.zarr").display(),
        golden_model("identity").display()
    );
    std::fs::write(scene.path("run.toml"), text).unwrap();
    scene.path("run.toml")
}

/// Has haloflow read the very command line of a manifest, with its file and its folder in the scene, and say what it would do.
fn explain(words: &Value, variables: [(&str, &str); 2]) -> String {
    let scene = Scene::new();
    run_toml(&scene, scene.path("in.zarr").to_str().unwrap());
    let words: Vec<&str> = words.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(words[0], "run");
    let line = words[1..].join(" ");
    let line = line.replace("/etc/haloflow", scene.path("").to_str().unwrap().trim_end_matches('/'));
    let line = line.replace("/cache", scene.path("cache").to_str().unwrap());
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let ended = Haloflow::run().keys(&line).keys("--resume explain").variables(variables).end().well();
    assert!(!scene.path("out.zarr").exists());
    ended.stdout
}

fn seconds(words: &Value, key: &str) -> u64 {
    let words: Vec<&str> = words.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let at = words.iter().position(|word| *word == key).unwrap();
    words[at + 1].strip_suffix('s').unwrap().parse().unwrap()
}

#[test]
fn the_kubernetes_job_is_valid_and_its_command_line_is_understood() {
    let job = &manifests()["kubernetes"]["spec"];
    let pod = &job["template"]["spec"];
    let container = &pod["containers"][0];
    let told = explain(&container["args"], [("JOB_COMPLETION_INDEX", "3"), ("JOB_COMPLETIONS", "8")]);
    assert!(!told.is_empty());
    assert_eq!((&job["completionMode"], &pod["restartPolicy"]), (&json!("Indexed"), &json!("Never")));
    let count = container["env"].as_array().unwrap().iter().find(|variable| variable["name"] == "JOB_COMPLETIONS");
    assert_eq!(count.unwrap()["value"], job["completions"].to_string());
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > seconds(&container["args"], "--drain-timeout"));
    assert_eq!(container["resources"]["limits"]["nvidia.com/gpu"], 1);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    let action = |code: u64| {
        let rules = job["podFailurePolicy"]["rules"].as_array().unwrap();
        let rule = rules.iter().find(|rule| {
            let codes = rule["onExitCodes"]["values"].as_array();
            codes.is_some_and(|codes| codes.contains(&json!(code)))
        });
        rule.unwrap()["action"].as_str().unwrap()
    };
    // `Count` tries again, until the index's own tries are used up.
    assert_eq!([75, 64, 65].map(action), ["Count", "FailJob", "FailJob"]);
    assert!(job["backoffLimitPerIndex"].as_u64().unwrap() > 1);
}

#[test]
fn the_aws_batch_array_is_valid_and_its_command_line_is_understood() {
    let manifests = manifests();
    let [definition, array] = ["job-definition", "array-job"].map(|name| &manifests["aws-batch"][name]);
    let mut words = definition["containerProperties"]["command"].clone();
    assert_eq!(words.as_array_mut().unwrap().remove(0), "haloflow");
    let size = array["arrayProperties"]["size"].to_string();
    let told = explain(&words, [("AWS_BATCH_JOB_ARRAY_INDEX", "7"), ("AWS_BATCH_JOB_ARRAY_SIZE", &size)]);
    assert!(!told.is_empty());
    assert_eq!(array["jobDefinition"], definition["jobDefinitionName"]);
    // Batch kills 30 seconds after it has asked to stop.
    assert!(seconds(&words, "--drain-timeout") < 30);
    // The first condition that fits decides; a code that none fits is tried again.
    let conditions = definition["retryStrategy"]["evaluateOnExit"].as_array().unwrap();
    assert!(conditions.len() <= 5, "Batch takes five");
    let fits = |pattern: &str, code: &str| match pattern.strip_suffix('*') {
        Some(start) => code.starts_with(start),
        None => code == pattern,
    };
    let action = |code: &str| {
        let found = conditions
            .iter()
            .find(|condition| condition["onExitCode"].as_str().is_some_and(|pattern| fits(pattern, code)));
        found.map_or("RETRY", |condition| condition["action"].as_str().unwrap())
    };
    assert_eq!(["75", "74", "64", "65", "70"].map(action), ["RETRY", "RETRY", "EXIT", "EXIT", "EXIT"]);
}

/// The script as Slurm starts it for one task, with the binary and an `scontrol` that notes what it is told.
fn slurm(scene: &Scene, input: &str) -> Command {
    let programs = scene.path("programs");
    std::fs::create_dir_all(&programs).unwrap();
    let noted = scene.path("requeued");
    let scontrol = programs.join("scontrol");
    std::fs::write(&scontrol, format!("#!/bin/sh\necho \"$@\" >> '{}'\n", noted.display())).unwrap();
    std::fs::set_permissions(&scontrol, PermissionsExt::from_mode(0o755)).unwrap();
    if !programs.join("haloflow").exists() {
        symlink(binary::path(), programs.join("haloflow")).unwrap();
    }
    let mut script = Command::new("bash");
    script.arg(config().join("slurm/array.sbatch")).arg(run_toml(scene, input)).current_dir(scene.path(""));
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    script.env("PATH", path).env("HALOFLOW_CACHE", scene.path("cache"));
    let variables =
        [("ARRAY_TASK_ID", "0"), ("ARRAY_TASK_COUNT", "1"), ("ARRAY_TASK_MIN", "0"), ("ARRAY_JOB_ID", "77")];
    script.envs(variables.map(|(name, value)| (format!("SLURM_{name}"), value)));
    script
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_slurm_script_is_valid_and_queues_an_interrupted_task_again() {
    let options = manifests()["slurm"].clone();
    assert_eq!((&options["requeue"], &options["array"]), (&json!(true), &json!("0-7")));
    let scene = Scene::new();
    let here = scene.path("in.zarr");
    let ended = slurm(&scene, "/nowhere/in.zarr").output().unwrap();
    assert_eq!(ended.status.code(), Some(65), "{}", told(&ended));
    assert!(!scene.path("requeued").exists(), "no try would change a missing input");

    // The task is told to stop while it waits for its input.
    let web = HeldWeb::serve(here.clone(), "0/zarr.json");
    let running = slurm(&scene, &web.url()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let _held = web.wait_until_held();
    assert!(Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap().success());
    let ended = running.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(75), "{}", told(&ended));
    assert_eq!(std::fs::read_to_string(scene.path("requeued")).unwrap(), "requeue 77_0\n");

    let ended = slurm(&scene, here.to_str().unwrap()).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", told(&ended));
    assert_eq!(read_u16(&scene.path("out.zarr")), noisy(SHAPE));
}
