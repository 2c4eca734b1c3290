//! What a model wishes becomes the default of what was not typed.

use haloflow_model::{Form, Model, OutputMeaning, Package};

use crate::args::RunArgs;
use crate::typed::BatchSize;

/// Fills in what the model's facts say, where nothing was typed. Gives sentences that are worth a warning.
///
/// # Errors
/// A sentence if what was typed cannot work with the model.
pub(crate) fn fill(args: &mut RunArgs, model: &Model) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    lone_package(args, model);
    patch(args, model, &mut warnings)?;
    channels(args, model)?;
    normalisation(args, model);
    align(args, model, &mut warnings);
    seam(args, model);
    if model.facts.output != OutputMeaning::Intensity {
        args.no_output_denormalize.get_or_insert(true);
    }
    // f32 weights say nothing: the default on CUDA is to compute in f16 whatever they are.
    let (kind, on_cpu) = (model.facts.kind, args.devices.iter().flatten().any(|device| device == "cpu"));
    if args.kind.is_none() && args.no_amp != Some(true) && kind != haloflow_model::Kind::F32 && !on_cpu {
        args.kind = Some(kind.to_string());
    }
    Ok(warnings)
}

/// A package that was named by itself runs at the one shape that it was made for.
fn lone_package(args: &mut RunArgs, model: &Model) {
    let Some(Package { facts, .. }) = model.packages.first().filter(|_| model.form == Form::Package) else { return };
    args.patch.get_or_insert_with(|| facts.patch.to_vec());
    if !facts.dynamic {
        args.batch.get_or_insert(BatchSize::Patches(facts.batch));
    }
    if args.no_amp != Some(true) {
        args.kind.get_or_insert_with(|| facts.kind.to_string());
    }
}

/// One value for all axes, or three; another count is told of when the settings are made.
fn three(typed: Option<&Vec<usize>>) -> Option<[usize; 3]> {
    match *typed?.as_slice() {
        [all] => Some([all; 3]),
        [z, y, x] => Some([z, y, x]),
        _ => None,
    }
}

fn patch(args: &mut RunArgs, model: &Model, warnings: &mut Vec<String>) -> Result<(), String> {
    let facts = &model.facts;
    if args.patch.is_none() {
        args.patch = facts.patch.map(|patch| patch.to_vec());
    }
    let Some(patch) = three(args.patch.as_ref()) else { return Ok(()) };
    warnings.extend(facts.patch_problem(patch));
    match model.zoo.as_ref().and_then(|zoo| zoo.patch_problem(patch)) {
        Some(sentence) => Err(sentence),
        None => Ok(()),
    }
}

fn channels(args: &mut RunArgs, model: &Model) -> Result<(), String> {
    let Some(taken) = model.facts.channels_in else { return Ok(()) };
    let named = args.c.get_or_insert_with(|| (0..taken).collect()).len();
    if named == taken {
        return Ok(());
    }
    Err(format!("`c` names {named} and the model {} takes {taken} channels in; name one for each", model.facts.name))
}

fn normalisation(args: &mut RunArgs, model: &Model) {
    let Some(facts) = model.facts.normalisation.as_ref().filter(|_| args.normalize.is_none()) else { return };
    args.normalize = Some(facts.how.clone());
    args.norm_lower = args.norm_lower.or(facts.lower);
    args.norm_upper = args.norm_upper.or(facts.upper);
    if args.clip_norm.is_none() {
        args.clip_norm = facts.clip.and_then(|clip| clip.bounds()).map(|bounds| bounds.to_vec());
    }
    if let Some([mean, deviation]) = model.zoo.as_ref().and_then(|zoo| zoo.given)
        && args.norm_mean.is_none()
        && args.norm_sd.is_none()
    {
        (args.norm_mean, args.norm_sd) = (Some(mean), Some(deviation));
    }
}

fn align(args: &mut RunArgs, model: &Model, warnings: &mut Vec<String>) {
    let Some(wished) = model.facts.align else { return };
    // Weights with a name are run as the predecessor ran them, on whatever grid the overlap gives.
    if args.align.is_none() && args.model_type.is_none() {
        args.align = Some(wished.to_vec());
    }
    let used = three(args.align.as_ref()).unwrap_or([1; 3]);
    if (0..3).any(|axis| !used[axis].is_multiple_of(wished[axis].max(1))) {
        warnings.push(format!(
            "`align` is {used:?} and the model {} has a pooling grid of {wished:?}: patches that start off it differ a little from \
             their neighbours; `--align {}` puts them on it, at more overlap",
            model.facts.name,
            wished.map(|size| size.to_string()).join(" ")
        ));
    }
}

/// A model zoo's halo is what is cut from each inner face.
fn seam(args: &mut RunArgs, model: &Model) {
    let halo = model.zoo.as_ref().map_or([0; 3], |zoo| zoo.halo);
    let typed = args.trim_voxels.is_some() || args.overlap.is_some() || args.seam_mode.is_some();
    if model.form == Form::Zoo && halo != [0; 3] && !typed {
        args.trim_voxels = Some(halo.to_vec());
        args.overlap = Some(halo.map(|voxels| 2 * voxels).to_vec());
    }
}

#[cfg(test)]
mod tests {
    use haloflow_model::{Cache, Clip, NormalisationFacts};

    use super::*;

    fn model() -> Model {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.ts");
        std::fs::write(&path, "").unwrap();
        let mut model = Model::open(&path, &Cache::new(Some(folder.path()), |_| None).unwrap()).unwrap();
        model.facts.patch = Some([32, 64, 64]);
        model.facts.divisible_by = [16; 3];
        model.facts.channels_in = Some(2);
        model.facts.align = Some([16; 3]);
        model.facts.output = OutputMeaning::Probability;
        let clip = Some(Clip::Bounds([0.0, 2.0]));
        model.facts.normalisation =
            Some(NormalisationFacts { how: "volume".into(), lower: Some(1.0), upper: Some(99.0), clip });
        model
    }

    #[test]
    fn what_was_not_typed_follows_the_model() {
        let mut args = RunArgs::default();
        assert_eq!(fill(&mut args, &model()), Ok(vec![]));
        let expected = RunArgs {
            patch: Some(vec![32, 64, 64]),
            c: Some(vec![0, 1]),
            normalize: Some("volume".into()),
            norm_lower: Some(1.0),
            norm_upper: Some(99.0),
            clip_norm: Some(vec![0.0, 2.0]),
            align: Some(vec![16; 3]),
            no_output_denormalize: Some(true),
            ..RunArgs::default()
        };
        assert_eq!(args, expected);
    }

    #[test]
    fn what_was_typed_stays_and_is_warned_of() {
        let typed = RunArgs {
            patch: Some(vec![40]),
            c: Some(vec![3, 1]),
            normalize: Some("false".into()),
            align: Some(vec![8]),
            no_output_denormalize: Some(false),
            ..RunArgs::default()
        };
        let mut args = typed.clone();
        let warnings = fill(&mut args, &model()).unwrap();
        assert_eq!(args, typed);
        assert!(warnings[0].contains("`patch` is 40 along axis z") && warnings[0].contains("multiple of 16"));
        assert!(warnings[1].contains("`align` is [8, 8, 8]") && warnings[1].contains("--align 16 16 16"));
    }

    #[test]
    fn channels_that_do_not_fit_are_refused() {
        let mut args = RunArgs { c: Some(vec![0]), ..RunArgs::default() };
        let told = fill(&mut args, &model()).unwrap_err();
        assert!(told.contains("`c` names 1 and") && told.contains("takes 2 channels in"), "{told}");
    }
}
