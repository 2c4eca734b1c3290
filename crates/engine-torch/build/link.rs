// How a binary is linked with libtorch. Shared, by `include!`, by the build scripts of every package that makes one.

/// Prints the linker arguments that let a binary find libtorch where it was built, with no environment variable, and that
/// keep `libtorch_cuda`: no symbol of it is named, so the linker would drop it and the binary would see no GPU.
fn link_libtorch(lib_dir: &std::path::Path) {
    let folder = std::fs::canonicalize(lib_dir).unwrap_or_else(|_| lib_dir.to_path_buf());
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", folder.display());
    if folder.join("libtorch_cuda.so").exists() {
        println!("cargo::rustc-link-arg=-L{}", folder.display());
        println!("cargo::rustc-link-arg=-Wl,--no-as-needed");
        println!("cargo::rustc-link-arg=-ltorch_cuda");
        println!("cargo::rustc-link-arg=-lc10_cuda");
        println!("cargo::rustc-link-arg=-Wl,--as-needed");
    }
}
