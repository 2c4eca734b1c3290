//! Compiles the C++ part and tells dependants where libtorch is.
#![expect(clippy::print_stdout, reason = "printing is how a build script talks to cargo")]

use std::path::{Path, PathBuf};
use std::process::exit;

include!("cuda.rs");
include!("link.rs");

fn main() {
    println!("cargo::rerun-if-changed=build");
    for file in ["module.cc", "package.cc", "stream.cc", "graph.cc", "system.cc", "boundary.h", "guard.h"] {
        println!("cargo::rerun-if-changed=src/{file}");
    }
    println!("cargo::rerun-if-env-changed=CUDA_HOME");
    // Given by torch-sys.
    let Some(lib_dir) = std::env::var_os("DEP_TCH_LIBTORCH_LIB").map(PathBuf::from) else {
        println!("cargo::error=torch-sys did not say where libtorch is: run `cargo xtask setup` and build again.");
        exit(1);
    };
    // Another libtorch behind the same link: the rpath below would be the old one's.
    println!("cargo::rerun-if-changed={}", lib_dir.with_file_name("version.py").display());
    compile(&lib_dir);
    println!("cargo::metadata=lib_dir={}", lib_dir.display());
    link_libtorch(&lib_dir);
}

fn compile(lib_dir: &Path) {
    let include = lib_dir.with_file_name("include");
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(1)
        // libtorch's headers are not ours to mend.
        .flag("-isystem")
        .flag(include.as_os_str())
        .flag("-isystem")
        .flag(include.join("torch/csrc/api/include").as_os_str())
        .flag("-Wall")
        .files(["src/module.cc", "src/package.cc", "src/stream.cc", "src/graph.cc", "src/system.cc"]);
    match cuda_headers(lib_dir) {
        Some(folders) => {
            build.define("HALOFLOW_CUDA_GRAPHS", None);
            for folder in folders {
                build.flag("-isystem").flag(folder.as_os_str());
            }
        }
        None => println!("cargo::warning=without CUDA's headers CUDA graphs are left out"),
    }
    build.compile("haloflow_torch");
}
