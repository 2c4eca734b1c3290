//! AOTInductor packages: see package.cc.

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use tch::{Device, Tensor};
use torch_sys::C_tensor;

use super::{Failure, c_device, c_path, checked, take_text};

/// A package in C++.
#[repr(C)]
struct RawPackage {
    _private: [u8; 0],
}

// SAFETY: the declarations match the definitions in package.cc; none of those lets an exception out.
unsafe extern "C" {
    fn haloflow_package_metadata(path: *const c_char, metadata: *mut *mut c_char, text: *mut *mut c_char) -> c_int;
    fn haloflow_package_load(
        path: *const c_char,
        device: c_int,
        out: *mut *mut RawPackage,
        text: *mut *mut c_char,
    ) -> c_int;
    fn haloflow_package_forward(
        package: *mut RawPackage,
        input: *const C_tensor,
        out: *mut *mut C_tensor,
        text: *mut *mut c_char,
    ) -> c_int;
    fn haloflow_package_free(package: *mut RawPackage);
    fn haloflow_package_check_inputs();
    fn haloflow_architecture(device: c_int, architecture: *mut *mut c_char, text: *mut *mut c_char) -> c_int;
}

static CHECK_INPUTS: Once = Once::new();

/// libtorch unpacks a package into a folder for the time that it is loaded. Of several that come and go at one time one in some dozens does not
/// find its own files there ("No device information found"), so they come and go one by one.
static UNPACKING: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    UNPACKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An AOTInductor package on its device. It stays on the thread that loaded it.
pub(crate) struct Package {
    raw: *mut RawPackage,
}

impl Package {
    /// Loads the package at `path` onto `device`.
    pub(crate) fn load(path: &Path, device: Device) -> Result<Self, Failure> {
        let path = c_path(path)?;
        // SAFETY: it sets a variable of the environment, once; nothing here reads that one but packages, which are loaded later.
        CHECK_INPUTS.call_once(|| unsafe { haloflow_package_check_inputs() });
        let mut raw = null_mut();
        let _alone = alone();
        // SAFETY: `path` ends with a zero byte and outlives the call; `raw` is written on success only.
        checked(|text| unsafe { haloflow_package_load(path.as_ptr(), c_device(device), &raw mut raw, text) })?;
        Ok(Self { raw })
    }

    /// Runs the package on `input`, which is on its device, on that device's current stream.
    pub(crate) fn forward(&self, input: &Tensor) -> Result<Tensor, Failure> {
        let mut output = null_mut();
        // SAFETY: `self.raw` came from `haloflow_package_load` and is freed in `drop` only; `input` is alive.
        checked(|text| unsafe { haloflow_package_forward(self.raw, input.as_ptr(), &raw mut output, text) })?;
        // SAFETY: on success `output` is a new `at::Tensor`, which `Tensor` deletes.
        Ok(unsafe { Tensor::from_ptr(output) })
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        let _alone = alone();
        // SAFETY: `self.raw` came from `haloflow_package_load` and is freed here only.
        unsafe { haloflow_package_free(self.raw) }
    }
}

/// What the package at `path` says of itself without being loaded.
pub(crate) fn metadata(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let path = c_path(path)?;
    let mut lines = null_mut();
    let _alone = alone();
    // SAFETY: `path` ends with a zero byte and outlives the call; `lines` is a text to take on success.
    checked(|text| unsafe { haloflow_package_metadata(path.as_ptr(), &raw mut lines, text) })?;
    let lines = take_text(lines);
    let pairs = lines.lines().filter_map(|line| line.split_once('='));
    Ok(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// The processor's vector instructions as libtorch names them, or a CUDA device's compute capability, such as `90`.
pub(crate) fn architecture(device: Device) -> Result<String, Failure> {
    let mut architecture = null_mut();
    // SAFETY: `architecture` is a text to take on success.
    checked(|text| unsafe { haloflow_architecture(c_device(device), &raw mut architecture, text) })?;
    Ok(take_text(architecture))
}
