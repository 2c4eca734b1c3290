//! Compiles the C++ part and tells dependants where libtorch is.
#![expect(clippy::print_stdout, reason = "printing is how a build script talks to cargo")]

use std::path::{Path, PathBuf};
use std::process::exit;

include!("link.rs");

fn main() {
    println!("cargo::rerun-if-changed=build");
    for source in ["src/guard.h", "src/module.cc", "src/package.cc"] {
        println!("cargo::rerun-if-changed={source}");
    }
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
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(1)
        // libtorch's headers are not ours to mend.
        .flag("-isystem")
        .flag(include.as_os_str())
        .flag("-isystem")
        .flag(include.join("torch/csrc/api/include").as_os_str())
        .flag("-Wall")
        .file("src/module.cc")
        .file("src/package.cc")
        .compile("haloflow_torch");
}
