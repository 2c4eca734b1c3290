//! `--part`: which part of the volume this process computes.

use haloflow_pipeline::Part;

use crate::args::RunArgs;
use crate::typed::ShardValue;

/// Where array engines tell a process its index, the first index, and how many there are.
const ENGINES: [(&str, &str, &str, Option<&str>); 3] = [
    ("a Kubernetes indexed job", "JOB_COMPLETION_INDEX", "JOB_COMPLETIONS", None),
    ("an AWS Batch array", "AWS_BATCH_JOB_ARRAY_INDEX", "AWS_BATCH_JOB_ARRAY_SIZE", None),
    ("a Slurm array", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", Some("SLURM_ARRAY_TASK_MIN")),
];

/// The values of `shard` that are sizes.
pub(crate) fn shard_sizes(args: &RunArgs) -> Option<Vec<usize>> {
    let sizes = args.shard.iter().flatten().filter_map(|value| match value {
        ShardValue::Voxels(voxels) => Some(*voxels),
        ShardValue::Part(_) => None,
    });
    Some(sizes.collect()).filter(|sizes: &Vec<usize>| !sizes.is_empty())
}

/// What was typed as the part, by either name.
pub(crate) fn typed(args: &RunArgs) -> Option<&str> {
    let parts = args.shard.iter().flatten().filter_map(|value| match value {
        ShardValue::Voxels(_) => None,
        ShardValue::Part(part) => Some(part),
    });
    args.part.iter().chain(parts).map(String::as_str).next()
}

/// Reads `I/N` or `auto`.
///
/// # Errors
/// A sentence that says what is allowed.
pub(crate) fn part(typed: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Part, String> {
    let Some(typed) = typed else { return Ok(Part::Whole) };
    if typed == "auto" {
        return of_engine(variable);
    }
    let numbers = typed.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    match numbers {
        Some((index, count)) if index < count => Ok(Part::Shard { index, count }),
        _ => Err(format!(
            "`part` is {typed}; give I/N with I from 0 to N - 1, such as 0/8 for the first of eight, or auto"
        )),
    }
}

fn of_engine(variable: impl Fn(&str) -> Option<String>) -> Result<Part, String> {
    let found = ENGINES.iter().find_map(|engine| Some((engine, variable(engine.1)?)));
    let Some(((engine, name, counted, first), index)) = found else {
        let names = ENGINES.map(|engine| engine.1).join(", ");
        return Err(format!("`part` is auto and none of {names} is set; give it as I/N, such as `--part 0/8`"));
    };
    let number = |name: &str, text: String| {
        text.trim().parse::<usize>().map_err(|_| format!("`part` is auto and {name} is {text:?}, which is no number"))
    };
    let Some(count) = variable(counted) else {
        return Err(format!(
            "`part` is auto and {name} tells the index in {engine}, but {counted} is not set; set it to the number of parts"
        ));
    };
    let (index, count) = (number(name, index)?, number(counted, count)?);
    let first = first.and_then(|name| Some((name, variable(name)?)));
    let first = first.map_or(Ok(0), |(name, text)| number(name, text))?;
    match index.checked_sub(first) {
        Some(index) if index < count => Ok(Part::Shard { index, count }),
        _ => Err(format!(
            "`part` is auto and {name} is {index}, which is not among {count} from {first} on; number the array without gaps"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(variables: &[(&str, &str)]) -> Result<Part, String> {
        part(Some("auto"), |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn parts_are_typed_by_index_and_count() {
        let of = |typed| part(typed, |_| None);
        assert_eq!(of(None), Ok(Part::Whole));
        assert_eq!(of(Some("7/8")), Ok(Part::Shard { index: 7, count: 8 }));
        for wrong in ["8/8", "1", "-1/4", "a/b", "0/0", ""] {
            assert!(of(Some(wrong)).unwrap_err().starts_with(&format!("`part` is {wrong}; give I/N")), "{wrong}");
        }
    }

    #[test]
    fn array_engines_tell_theirs() {
        let shard = |index, count| Ok(Part::Shard { index, count });
        assert_eq!(auto(&[("JOB_COMPLETION_INDEX", "3"), ("JOB_COMPLETIONS", "4")]), shard(3, 4));
        assert_eq!(auto(&[("AWS_BATCH_JOB_ARRAY_INDEX", "0"), ("AWS_BATCH_JOB_ARRAY_SIZE", "2")]), shard(0, 2));
        let slurm = |id, min| {
            auto(&[("SLURM_ARRAY_TASK_ID", id), ("SLURM_ARRAY_TASK_COUNT", "5"), ("SLURM_ARRAY_TASK_MIN", min)])
        };
        assert_eq!(slurm("5", "1"), shard(4, 5));
        assert!(slurm("6", "1").unwrap_err().contains("SLURM_ARRAY_TASK_ID is 6, which is not among 5 from 1 on"));
        assert!(auto(&[]).unwrap_err().contains("none of JOB_COMPLETION_INDEX, AWS_BATCH_JOB_ARRAY_INDEX"));
        assert!(auto(&[("JOB_COMPLETION_INDEX", "3")]).unwrap_err().contains("JOB_COMPLETIONS is not set"));
        assert!(auto(&[("JOB_COMPLETION_INDEX", "x"), ("JOB_COMPLETIONS", "4")]).unwrap_err().contains("is no number"));
    }
}
