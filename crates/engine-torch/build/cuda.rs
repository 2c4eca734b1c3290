// Where CUDA's headers are, for the one file that needs them (src/graph.cc).

/// The folders to search for CUDA's headers, if this libtorch has CUDA and they are all there.
///
/// The wheel of the CUDA runtime that libtorch's wheel brings along lacks the folder `crt`; the wheel of Triton, which comes
/// along too, has it. A CUDA toolkit has everything.
fn cuda_headers(lib_dir: &Path) -> Option<Vec<PathBuf>> {
    // The folder may be reached through a link.
    let lib_dir = std::fs::canonicalize(lib_dir).ok()?;
    if !lib_dir.join("libtorch_cuda.so").exists() {
        return None;
    }
    let packages = lib_dir.parent()?.parent()?;
    let toolkit = std::env::var_os("CUDA_HOME").map(|home| PathBuf::from(home).join("include"));
    let wheels = [packages.join("nvidia/cu13/include"), packages.join("triton/backends/nvidia/include")];
    let folders: Vec<PathBuf> = wheels.into_iter().chain(toolkit).filter(|folder| folder.exists()).collect();
    let complete = ["cuda_runtime_api.h", "crt/host_defines.h"]
        .iter()
        .all(|header| folders.iter().any(|folder| folder.join(header).exists()));
    complete.then_some(folders)
}
