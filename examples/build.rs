//! Links this package's binaries with libtorch.

include!("../crates/engine-torch/build/link.rs");

fn main() {
    println!("cargo::rerun-if-changed=../crates/engine-torch/build/link.rs");
    // Given by haloflow-engine-torch, to the packages that depend on it.
    if let Some(lib_dir) = std::env::var_os("DEP_HALOFLOW_TORCH_LIB_DIR") {
        link_libtorch(std::path::Path::new(&lib_dir));
    }
}
