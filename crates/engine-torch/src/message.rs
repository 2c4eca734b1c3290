//! Reads libtorch's error texts: the line that matters, and the two kinds that a caller must tell apart.
//!
//! libtorch throws one type of exception for nearly everything, so that its text is all there is to go by. This file is
//! the only place that looks at it.

use haloflow_engine::EngineErrorKind;

/// Texts that name a kind, the first that is found deciding.
const KINDS: &[(&str, EngineErrorKind)] = &[
    ("device-side assert", EngineErrorKind::DeviceLost),
    ("illegal memory access", EngineErrorKind::DeviceLost),
    ("illegal instruction was encountered", EngineErrorKind::DeviceLost),
    ("misaligned address", EngineErrorKind::DeviceLost),
    ("unspecified launch failure", EngineErrorKind::DeviceLost),
    ("launch timed out", EngineErrorKind::DeviceLost),
    ("uncorrectable ECC error", EngineErrorKind::DeviceLost),
    ("uncorrectable NVLink error", EngineErrorKind::DeviceLost),
    ("GPU is lost", EngineErrorKind::DeviceLost),
    ("device(s) is/are busy or unavailable", EngineErrorKind::DeviceLost),
    ("CUDA driver error: unknown error", EngineErrorKind::DeviceLost),
    ("CUDA error: unknown error", EngineErrorKind::DeviceLost),
    ("out of memory", EngineErrorKind::OutOfMemory),
    ("CUBLAS_STATUS_ALLOC_FAILED", EngineErrorKind::OutOfMemory),
    ("CUDNN_STATUS_ALLOC_FAILED", EngineErrorKind::OutOfMemory),
    ("can't allocate memory", EngineErrorKind::OutOfMemory),
];

/// What kind of failure of a run `text` tells of.
pub(crate) fn run_kind(text: &str) -> EngineErrorKind {
    let found = KINDS.iter().find(|(part, _)| text.contains(part));
    found.map_or(EngineErrorKind::Run, |(_, kind)| *kind)
}

/// The one line of `text` that a person needs.
///
/// TorchScript puts the message last, after a traceback of the model's code; a C++ exception puts it first, before a
/// backtrace of libtorch's.
pub(crate) fn meaningful_line(text: &str) -> &str {
    if text.contains("API call failed") && text.contains("run_func_") {
        // What a compiled package throws does not cross its boundary: it prints it.
        return "the compiled package failed; it was given another shape or kind than it was made for, or ran out of memory: it \
                wrote which to standard error";
    }
    let before_backtrace = text.split("Exception raised from").next().unwrap_or(text);
    let message = before_backtrace.rsplit_once("<--- HERE");
    let says_something = |line: &&str| !line.trim().is_empty();
    let line = match message {
        // The code that follows the marked line is indented, the message is not.
        Some((_, after)) => after.lines().filter(says_something).find(|line| !line.starts_with(' ')),
        None => before_backtrace.lines().find(says_something),
    };
    let line = line.unwrap_or("libtorch gave no reason").trim();
    line.strip_prefix("builtins.").or_else(|| line.strip_prefix("RuntimeError: ")).unwrap_or(line)
}

/// The first sentence of a line: where a file is no module, libtorch goes on with guesses.
pub(crate) fn first_sentence(line: &str) -> &str {
    line.split_once(". ").map_or(line, |(first, _)| first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_script_comes_last() {
        let text = "The following operation failed in the TorchScript interpreter.\n\
            Traceback of TorchScript, serialized code (most recent call last):\n  File \"code/m.py\", line 9, in forward\n\
            \x20   ops.prim.RaiseException(\"voxel too bright\")\n    ~~~~~~~~~~~~ <--- HERE\n\n\
            Traceback of TorchScript, original code (most recent call last):\n  File \"m.py\", line 7, in forward\n\
            \x20     raise ValueError(\"voxel too bright\")\n      ~~~~~ <--- HERE\n    else:\n      return x\n\n";
        for (tail, line) in [
            ("builtins.ValueError: voxel too bright\n", "ValueError: voxel too bright"),
            ("RuntimeError: two\nlines\n", "two"),
        ] {
            assert_eq!(meaningful_line(&format!("{text}{tail}")), line);
        }
    }

    #[test]
    fn the_message_of_libtorch_comes_first() {
        let text = "PytorchStreamReader failed reading zip archive: failed finding central directory\n\
            Exception raised from valid at inline_container.cc:241 (most recent call first):\nframe #0: c10::Error";
        let line = "PytorchStreamReader failed reading zip archive: failed finding central directory";
        assert_eq!(meaningful_line(text), line);
        assert_eq!(first_sentence("not a ZIP archive. This may be"), "not a ZIP archive");
        assert_eq!(meaningful_line("short. Exception raised from x"), "short.");
        assert_eq!(meaningful_line(" \n"), "libtorch gave no reason");
    }

    #[test]
    fn a_package_that_fails_says_where_its_reason_is() {
        let text = "run_func_( container_handle_, input_handles.data() ) API call failed at model_container_runner.cpp, line 144";
        assert!(meaningful_line(text).contains("standard error"));
    }

    #[test]
    fn kinds_are_told_by_their_texts() {
        let table = [
            (
                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity",
                EngineErrorKind::OutOfMemory,
            ),
            (
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                EngineErrorKind::OutOfMemory,
            ),
            ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes", EngineErrorKind::OutOfMemory),
            ("CUDA error: an illegal memory access was encountered", EngineErrorKind::DeviceLost),
            ("CUDA error: device-side assert triggered", EngineErrorKind::DeviceLost),
            ("CUDA error: uncorrectable ECC error encountered", EngineErrorKind::DeviceLost),
            ("mat1 and mat2 shapes cannot be multiplied", EngineErrorKind::Run),
        ];
        for (text, kind) in table {
            assert_eq!(run_kind(text), kind, "{text}");
        }
    }
}
