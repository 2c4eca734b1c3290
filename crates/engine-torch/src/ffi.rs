//! The boundary to C++: with its part for packages, the only code with `unsafe`. Everything it offers is safe to call.

mod package;
mod system;

pub(crate) use package::{Package, architecture, metadata};
pub(crate) use system::{build, device, driver};

use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

use haloflow_engine::ElementKind;
use tch::{Device, Kind, TchError, Tensor};
use torch_sys::C_tensor;

/// Why C++ could not do what was asked, in its own words.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An exception was thrown: its whole text.
    Thrown(String),
    /// The module gave something that is no tensor: what it was.
    NoTensor(String),
}

impl From<TchError> for Failure {
    fn from(error: TchError) -> Self {
        match error {
            TchError::Torch(text) => Self::Thrown(text),
            other => Self::Thrown(other.to_string()),
        }
    }
}

/// A `torch::jit::Module`.
#[repr(C)]
struct RawModule {
    _private: [u8; 0],
}

// SAFETY: the declarations match the definitions in module.cc; none of those lets an exception out.
unsafe extern "C" {
    fn haloflow_module_load(
        path: *const c_char,
        device: c_int,
        kind: c_int,
        out: *mut *mut RawModule,
        text: *mut *mut c_char,
    ) -> c_int;
    fn haloflow_module_forward(
        module: *mut RawModule,
        input: *const C_tensor,
        out: *mut *mut C_tensor,
        text: *mut *mut c_char,
    ) -> c_int;
    fn haloflow_module_free(module: *mut RawModule);
    fn haloflow_text_free(text: *mut c_char);
    fn haloflow_copy(into: *mut C_tensor, from: *const C_tensor, text: *mut *mut c_char) -> c_int;
    fn haloflow_configure(intra_op_threads: c_int, tf32: bool, cudnn_benchmark: bool, text: *mut *mut c_char) -> c_int;
    fn haloflow_cuda_devices(count: *mut i64, text: *mut *mut c_char) -> c_int;
    fn haloflow_versions(cuda: *mut i64, libtorch: *mut *mut c_char, text: *mut *mut c_char) -> c_int;
}

/// A TorchScript module in evaluation mode. It stays on the thread that loaded it.
pub(crate) struct ScriptModule {
    raw: *mut RawModule,
}

impl ScriptModule {
    /// Loads the file at `path` onto `device`, floating-point weights converted to `kind`, and freezes it where possible.
    pub(crate) fn load(path: &Path, device: Device, kind: ElementKind) -> Result<Self, Failure> {
        let (path, index) = (c_path(path)?, c_device(device));
        let mut raw = null_mut();
        let kind = match kind {
            ElementKind::F32 => 0,
            ElementKind::F16 => 1,
            ElementKind::Bf16 => 2,
        };
        // SAFETY: `path` ends with a zero byte and outlives the call; `raw` is written on success only.
        checked(|text| unsafe { haloflow_module_load(path.as_ptr(), index, kind, &raw mut raw, text) })?;
        Ok(Self { raw })
    }

    /// Runs the module on `input`, which is on its device. The result may share `input`'s memory.
    pub(crate) fn forward(&self, input: &Tensor) -> Result<Tensor, Failure> {
        let mut output = null_mut();
        // SAFETY: `self.raw` came from `haloflow_module_load` and is freed in `drop` only; `input` is alive.
        checked(|text| unsafe { haloflow_module_forward(self.raw, input.as_ptr(), &raw mut output, text) })?;
        // SAFETY: on success `output` is a new `at::Tensor`, which `Tensor` deletes.
        Ok(unsafe { Tensor::from_ptr(output) })
    }
}

impl Drop for ScriptModule {
    fn drop(&mut self) {
        // SAFETY: `self.raw` came from `haloflow_module_load` and is freed here only.
        unsafe { haloflow_module_free(self.raw) }
    }
}

/// Host memory seen as a tensor, without a copy, for as long as the memory is borrowed.
pub(crate) struct HostTensor<'memory> {
    tensor: Tensor,
    _memory: PhantomData<&'memory mut [u8]>,
}

impl<'memory> HostTensor<'memory> {
    /// Sees the whole of `memory` as a tensor of `size` and `kind`, C order.
    ///
    /// Borrowed mutably, also to be read from, since a module may write to its input.
    pub(crate) fn new(memory: &'memory mut [u8], size: &[i64], kind: Kind) -> Result<Self, Failure> {
        let bytes = size.iter().product::<i64>() * i64::try_from(kind.elt_size_in_bytes()).unwrap_or(i64::MAX);
        if usize::try_from(bytes) != Ok(memory.len()) {
            let message = format!("{} bytes are no tensor of {size:?} {kind:?}", memory.len());
            return Err(Failure::Thrown(message));
        }
        // SAFETY: the memory is as long as the tensor says, initialised, aligned for u64 (a law of `HostMemory`; a row's
        // offset is 0) and borrowed for as long as `self` lives. A module that kept its input beyond `forward` would break
        // this; frozen modules have no attribute to keep it in.
        let tensor = unsafe { Tensor::f_from_blob(memory.as_mut_ptr(), size, &[], kind, Device::Cpu)? };
        Ok(Self { tensor, _memory: PhantomData })
    }

    /// The tensor. A clone of the handle must not outlive `self`.
    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Copies `source`, of the same size, into the memory, converting the kind; returns when the copy is done.
    pub(crate) fn fill_from(&mut self, source: &Tensor) -> Result<(), Failure> {
        Ok(self.tensor.f_copy_(source)?)
    }
}

/// Puts a copy on the calling thread's current stream, converting the kind, and does not wait for it where one side is a CUDA
/// device's and the other pinned or a CUDA device's too. Memory of the host must stay as it is until the copy is done: the
/// ring's events tell.
pub(crate) fn copy_without_waiting(into: &Tensor, from: &Tensor) -> Result<(), Failure> {
    // SAFETY: both are alive; the tensor behind `into` is changed, not the handle.
    checked(|text| unsafe { haloflow_copy(into.as_ptr().cast_mut(), from.as_ptr(), text) })
}

/// Sets libtorch's process-wide switches; `intra_op_threads` counts from 1.
pub(crate) fn configure(intra_op_threads: usize, tf32: bool, cudnn_benchmark: bool) -> Result<(), Failure> {
    let threads = c_int::try_from(intra_op_threads.max(1)).unwrap_or(c_int::MAX);
    // SAFETY: plain values.
    checked(|text| unsafe { haloflow_configure(threads, tf32, cudnn_benchmark, text) })
}

/// libtorch's version, and the CUDA runtime's as (major, minor) where libtorch has CUDA.
pub(crate) fn versions() -> Result<(String, Option<(i64, i64)>), Failure> {
    let (mut cuda, mut libtorch) = (0, null_mut());
    // SAFETY: both are written on success; `libtorch` is then a text to take.
    checked(|text| unsafe { haloflow_versions(&raw mut cuda, &raw mut libtorch, text) })?;
    Ok((take_text(libtorch), (cuda > 0).then_some((cuda / 1000, cuda % 1000 / 10))))
}

/// The number of CUDA devices that can be used.
pub(crate) fn cuda_devices() -> Result<usize, Failure> {
    let mut count = 0;
    // SAFETY: `count` is written on success.
    checked(|text| unsafe { haloflow_cuda_devices(&raw mut count, text) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// A path as C++ takes it.
pub(crate) fn c_path(path: &Path) -> Result<CString, Failure> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Failure::Thrown("the path holds a zero byte".to_owned()))
}

/// A device as C++ takes it: negative is the CPU.
pub(crate) fn c_device(device: Device) -> c_int {
    match device {
        Device::Cuda(index) => c_int::try_from(index).unwrap_or(c_int::MAX),
        _ => -1,
    }
}

/// Calls C++ and turns its status and text into a result.
pub(crate) fn checked(call: impl FnOnce(*mut *mut c_char) -> c_int) -> Result<(), Failure> {
    let mut text = null_mut();
    match call(&raw mut text) {
        0 => Ok(()),
        2 => Err(Failure::NoTensor(take_text(text))),
        _ => Err(Failure::Thrown(take_text(text))),
    }
}

/// Takes a text that C++ allocated.
fn take_text(text: *mut c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, so it is a string from `strdup`, which is ours and freed here only.
    unsafe {
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        haloflow_text_free(text);
        owned
    }
}
