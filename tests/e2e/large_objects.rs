//! Objects that go to S3 in parts.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use haloflow_examples::faults::{Asked, Fault};
use haloflow_examples::s3::S3Server;
use haloflow_examples::volume::{NewVolume, read};
use haloflow_volume::{AlignedBytes, CpuPool, Element, Environment};
use hyper::Method;

/// One chunk of 72 MiB that does not get smaller: five parts of 16 MiB, the last of 8.
const SHAPE: [usize; 3] = [36, 1024, 1024];
const PARTS: usize = 5;

fn noise() -> AlignedBytes {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 16) as u16
    };
    AlignedBytes::from_slice(&(0..SHAPE.iter().product()).map(|_| next()).collect::<Vec<u16>>())
}

fn is_part(asked: &Asked<'_>) -> bool {
    asked.method == Method::PUT && asked.path.ends_with("/0/c/0/0/0")
}

/// Writes the chunk to a server on which the so-many-th part that comes meets a fault; then reads it back if it was written. Gives how
/// many parts came.
fn written(root: &Path, fault: impl Fn(usize) -> Option<Fault> + Send + Sync + 'static) -> (Result<(), String>, usize) {
    let parts = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&parts);
    let script = move |asked: Asked<'_>| {
        fault(if is_part(&asked) { count.fetch_add(1, Ordering::Relaxed) } else { return None })
    };
    let server = S3Server::start_faulty(root, "lab", Box::new(script)).unwrap();
    let environment = Environment::new(server.variables());
    let cpu = CpuPool::new(NonZeroUsize::MIN).unwrap();
    let new = NewVolume { url: "s3://lab/out.zarr".to_owned(), shape: SHAPE, element: Element::U16, chunk: SHAPE };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(async {
        let voxels = noise();
        new.write(voxels.clone(), &environment, &cpu).await.map_err(|error| format!("{error:#}"))?;
        let (_, stored) = read(&new.url, &environment, &cpu).await.unwrap();
        assert!(stored == voxels, "the object is not what was put");
        Ok(())
    });
    (result, parts.load(Ordering::Relaxed))
}

/// Names of what an upload that was never completed leaves behind.
fn left_over(root: &Path) -> Vec<String> {
    let names = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".upload")).collect()
}

#[test]
fn a_large_object_goes_in_parts_and_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (result, parts) = written(folder.path(), |_| None);
    result.unwrap();
    assert_eq!(parts, PARTS);
    assert_eq!(left_over(folder.path()), [""; 0]);
}

#[test]
fn a_part_that_fails_is_sent_again_alone() {
    let folder = tempfile::tempdir().unwrap();
    // One is not taken in, of another only the answer is lost, and one comes late, after its successors.
    let (result, parts) = written(folder.path(), |part| match part {
        0 => Some(Fault::Late(300)),
        1 => Some(Fault::Internal),
        3 => Some(Fault::LostReply),
        _ => None,
    });
    result.unwrap();
    assert_eq!(parts, PARTS + 2);
    assert_eq!(left_over(folder.path()), [""; 0]);
}

#[test]
fn an_upload_that_fails_is_aborted_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (result, _) = written(folder.path(), |part| (part >= 2).then_some(Fault::Denied));
    let error = result.unwrap_err();
    assert!(error.contains("out.zarr/0/c/0/0/0") && error.contains("permission was denied"), "{error}");
    assert_eq!(left_over(folder.path()), [""; 0]);
    assert!(!folder.path().join("lab/out.zarr/0/c/0/0/0").exists());
}
