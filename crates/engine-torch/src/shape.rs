//! Sizes of tensors: what goes in, and whether what comes out fits.

use haloflow_engine::{ElementKind, EngineSpec};
use tch::{Kind, Tensor};

use crate::cause::Cause;

/// The size of a tensor of `rows` patches, `[row, channel, z, y, x]`.
pub(crate) fn tensor_size(rows: usize, channels: usize, patch: [usize; 3]) -> [i64; 5] {
    let [z, y, x] = patch;
    [rows, channels, z, y, x].map(|side| i64::try_from(side).unwrap_or(i64::MAX))
}

/// libtorch's name for an element kind.
pub(crate) fn torch_kind(kind: ElementKind) -> Kind {
    match kind {
        ElementKind::F32 => Kind::Float,
        ElementKind::F16 => Kind::Half,
        ElementKind::Bf16 => Kind::BFloat16,
    }
}

/// The kind rows are given back in: the model's own where it computes in two bytes, f32 otherwise.
pub(crate) fn output_kind(input: ElementKind, output: Kind) -> ElementKind {
    match (input, output) {
        (ElementKind::F16 | ElementKind::Bf16, Kind::Half) => ElementKind::F16,
        (ElementKind::F16 | ElementKind::Bf16, Kind::BFloat16) => ElementKind::Bf16,
        _ => ElementKind::F32,
    }
}

/// Refuses an output that is no plain array of real numbers.
pub(crate) fn real_and_dense(output: &Tensor) -> Result<(), Cause> {
    if output.is_sparse() {
        return Err(Cause::shape("the model gave a sparse tensor; needed is a dense one"));
    }
    match output.f_kind()? {
        kind @ (Kind::ComplexHalf | Kind::ComplexFloat | Kind::ComplexDouble) => Err(Cause::shape(format!(
            "the model gave complex numbers ({kind:?}), which are not stored: let it give real ones, such as both parts as channels"
        ))),
        _ => Ok(()),
    }
}

/// An output of four axes, `[row, z, y, x]`, with the axis of its one channel; every other as it is.
pub(crate) fn with_channel_axis(output: Tensor) -> Result<Tensor, Cause> {
    if output.dim() == 4 { Ok(output.f_unsqueeze(1)?) } else { Ok(output) }
}

/// Checks that an output of `size` holds `rows` patches, and gives its number of channels.
pub(crate) fn output_channels(size: &[i64], rows: usize, patch: [usize; 3]) -> Result<usize, Cause> {
    let [z, y, x] = patch;
    let [batch, channels, oz, oy, ox] = *size else {
        let axes = size.len();
        let message =
            format!("the model gave a tensor of {axes} axes {size:?}; needed are 5, [{rows}, channels, {z}, {y}, {x}]");
        return Err(Cause::shape(message));
    };
    let [_, _, wanted @ ..] = tensor_size(rows, 1, patch);
    if [oz, oy, ox] != wanted {
        let message = format!("the model gave patches of {oz} x {oy} x {ox} voxels for patches of {z} x {y} x {x}");
        return Err(Cause::shape(message));
    }
    if usize::try_from(batch) != Ok(rows) {
        return Err(Cause::shape(format!("the model gave {batch} rows for a batch of {rows}")));
    }
    usize::try_from(channels).map_err(|_| Cause::shape(format!("the model gave {channels} channels")))
}

/// Checks that the model gives as many channels as there are outputs.
pub(crate) fn check_channels(given: usize, expected: usize) -> Result<(), Cause> {
    if given == expected {
        return Ok(());
    }
    let (s, outputs) = (plural(given), plural(expected));
    Err(Cause::shape(format!("the model gave {given} output channel{s} for {expected} output{outputs}")))
}

/// Checks that a spec asks for at least one of everything.
pub(crate) fn check_positive(spec: &EngineSpec) -> Result<(), Cause> {
    let EngineSpec { batch, channels_in, patch, .. } = spec;
    if *batch > 0 && *channels_in > 0 && spec.patch_voxels() > 0 {
        return Ok(());
    }
    let message = format!("batch {batch}, input channels {channels_in} and patch {patch:?} must all be at least 1");
    Err(Cause::shape(message))
}

/// The ending of a counted noun.
pub(crate) fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_fits_gives_its_channels() {
        assert_eq!(output_channels(&[4, 3, 8, 9, 10], 4, [8, 9, 10]).unwrap(), 3);
    }

    #[test]
    fn an_output_without_a_channel_axis_is_one_channel() {
        let complex = Tensor::zeros([1, 1, 2, 2, 2], (Kind::ComplexFloat, tch::Device::Cpu));
        assert!(real_and_dense(&complex).unwrap_err().message.contains("complex"));
        let sparse = Tensor::zeros([2, 2], (Kind::Float, tch::Device::Cpu)).to_sparse_sparse_dim(2);
        assert!(real_and_dense(&sparse).unwrap_err().message.contains("sparse"));
        let output = with_channel_axis(Tensor::zeros([2, 8, 9, 10], (Kind::Float, tch::Device::Cpu))).unwrap();
        assert_eq!(output.size(), [2, 1, 8, 9, 10]);
    }

    #[test]
    fn an_output_that_does_not_fit_names_both_sides() {
        let table: [(&[i64], [&str; 2]); 3] = [
            (&[4, 1, 4, 9, 10], ["4 x 9 x 10", "8 x 9 x 10"]),
            (&[1, 1, 8, 9, 10], ["1 rows", "batch of 4"]),
            (&[4, 9, 10], ["3 axes [4, 9, 10]", "[4, channels, 8, 9, 10]"]),
        ];
        for (size, parts) in table {
            let message = output_channels(size, 4, [8, 9, 10]).unwrap_err().message;
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
        let message = check_channels(2, 1).unwrap_err().message;
        assert_eq!(message, "the model gave 2 output channels for 1 output");
    }

    #[test]
    fn output_stays_in_two_bytes_only_where_the_input_is() {
        assert_eq!(output_kind(ElementKind::F16, Kind::Half), ElementKind::F16);
        assert_eq!(output_kind(ElementKind::F16, Kind::Float), ElementKind::F32);
        assert_eq!(output_kind(ElementKind::F32, Kind::Half), ElementKind::F32);
        assert_eq!(output_kind(ElementKind::Bf16, Kind::BFloat16), ElementKind::Bf16);
    }
}
