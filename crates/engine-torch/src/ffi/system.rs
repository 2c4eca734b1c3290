//! What this process has of libtorch and CUDA: see system.cc.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use super::{Failure, checked, take_text};

// SAFETY: the declarations match the definitions in system.cc; none of those lets an exception out.
unsafe extern "C" {
    fn haloflow_build(build: *mut *mut c_char, text: *mut *mut c_char) -> c_int;
    fn haloflow_driver(facts: *mut *mut c_char, text: *mut *mut c_char) -> c_int;
    fn haloflow_device(device: c_int, facts: *mut *mut c_char, text: *mut *mut c_char) -> c_int;
}

/// How the libtorch that was loaded was built, in its own words.
pub(crate) fn build() -> Result<String, Failure> {
    let mut build = null_mut();
    // SAFETY: `build` is a text to take on success.
    checked(|text| unsafe { haloflow_build(&raw mut build, text) })?;
    Ok(take_text(build))
}

/// What is known of the driver, as lines of `key=value`.
pub(crate) fn driver() -> Result<String, Failure> {
    let mut facts = null_mut();
    // SAFETY: `facts` is a text to take on success.
    checked(|text| unsafe { haloflow_driver(&raw mut facts, text) })?;
    Ok(take_text(facts))
}

/// What is known of a CUDA device, as lines of `key=value`.
pub(crate) fn device(index: usize) -> Result<String, Failure> {
    let mut facts = null_mut();
    let index = c_int::try_from(index).unwrap_or(c_int::MAX);
    // SAFETY: `facts` is a text to take on success.
    checked(|text| unsafe { haloflow_device(index, &raw mut facts, text) })?;
    Ok(take_text(facts))
}
