use super::*;

const OLD: &str = "
format_version: 0.4.9
type: model
name: Nuclei
inputs:
- name: raw
  axes: bczyx
  data_type: float32
  shape: {min: [1, 1, 16, 32, 32], step: [0, 0, 16, 16, 16]}
  preprocessing:
  - name: scale_range
    kwargs: {mode: per_sample, axes: zyx, min_percentile: 1.0, max_percentile: 99.8}
  - {name: clip, kwargs: {min: 0.0, max: 1.0}}
outputs:
- name: probability
  axes: bczyx
  shape: {reference_tensor: raw, scale: [1, 1, 1, 1, 1], offset: [0, 1, 0, 0, 0]}
  halo: [0, 0, 4, 8, 8]
  postprocessing:
  - name: sigmoid
  - {name: binarize, kwargs: {threshold: 0.5}}
weights:
  torchscript: {source: weights.pt, sha256: abc}
";

const NEW: &str = "
format_version: 0.5.3
type: model
name: Membranes
inputs:
- id: raw
  axes:
  - {type: batch}
  - {type: channel, channel_names: [a, b]}
  - {type: space, id: z, size: 32}
  - {type: space, id: y, size: {min: 32, step: 16}}
  - {type: space, id: x, size: {min: 32, step: 16}}
  preprocessing:
  - {id: ensure_dtype, kwargs: {dtype: float32}}
  - {id: fixed_zero_mean_unit_variance, kwargs: {mean: 100.0, std: 25.0}}
outputs:
- id: out
  axes:
  - {type: batch}
  - {type: channel, channel_names: [m]}
  - {type: space, id: z, size: {tensor_id: raw, axis_id: z}, halo: 2}
  - {type: space, id: y, size: {tensor_id: raw, axis_id: y}, halo: 4}
  - {type: space, id: x, size: {tensor_id: raw, axis_id: x}, halo: 4}
  postprocessing:
  - {id: scale_linear, kwargs: {gain: 2.0, offset: -1.0}}
  - {id: clip, kwargs: {min: 0.0, max: 1.0}}
weights:
  torchscript: {source: nets/w.pt}
";

fn parse(text: &str) -> Result<Zoo, String> {
    Zoo::parse(text, Path::new("zoo"))
}

#[test]
fn version_0_4_is_read() {
    let zoo = parse(OLD).unwrap();
    assert_eq!((zoo.module.to_str(), zoo.sha256.as_deref()), (Some("zoo/weights.pt"), Some("abc")));
    assert_eq!((zoo.facts.channels_in, zoo.facts.patch, zoo.halo), (Some(1), Some([64; 3]), [4, 8, 8]));
    let normalisation = zoo.facts.normalisation.as_ref().unwrap();
    assert_eq!(
        (normalisation.how.as_str(), normalisation.lower, normalisation.upper),
        ("volume", Some(1.0), Some(99.8))
    );
    assert_eq!(normalisation.clip.unwrap().bounds(), Some([0.0, 1.0]));
    assert_eq!(zoo.after, [VoxelStep::Sigmoid, VoxelStep::Binarize { threshold: 0.5 }]);
    assert_eq!(zoo.facts.output, OutputMeaning::Label);
    assert!(zoo.patch_problem([16, 40, 32]).unwrap().contains("32 plus any number of 16"));
}

#[test]
fn version_0_5_is_read() {
    let zoo = parse(NEW).unwrap();
    assert_eq!((zoo.facts.channels_in, zoo.facts.channels_out), (Some(2), Some(1)));
    assert_eq!((zoo.facts.patch, zoo.halo), (Some([32, 64, 64]), [2, 4, 4]));
    assert_eq!(zoo.given, Some([100.0, 25.0]));
    let after = [VoxelStep::Linear { gain: 2.0, offset: -1.0 }, VoxelStep::Clip { low: 0.0, high: 1.0 }];
    assert_eq!(zoo.after, after);
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (from, to, part) in [
        ("axes: bczyx", "axes: bcyx", "`axes` are bcyx"),
        ("torchscript", "onnx", "has onnx and no torchscript"),
        ("source: weights.pt", "source: https://a.org/w.pt", "nothing is fetched"),
        ("name: scale_range", "name: rescale", "the preprocessing rescale"),
        ("name: clip", "name: sigmoid", "the preprocessing sigmoid after scale_range"),
        ("name: sigmoid", "name: scale_mean_variance", "the postprocessing scale_mean_variance"),
        ("name: sigmoid", "name: softmax", "the postprocessing softmax"),
        ("scale: [1, 1, 1, 1, 1]", "scale: [1, 1, 2, 2, 2]", "`scale` is [1,1,2,2,2]"),
        ("type: model", "type: dataset", "`type` is dataset"),
    ] {
        assert!(OLD.contains(from), "{from}");
        let told = parse(&OLD.replacen(from, to, 1)).unwrap_err();
        assert!(told.contains(part), "{told}");
    }
    assert!(parse("inputs: [").is_err());
}
