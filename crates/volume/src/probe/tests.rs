use super::*;

async fn probed(source: &str, purpose: Purpose) -> Vec<(&'static str, Verdict)> {
    let probed = probe(source, purpose, &Environment::empty(), &CancellationToken::new()).await;
    for finding in &probed.findings {
        assert_eq!(finding.fix.is_some(), finding.verdict != Verdict::Ok, "{finding:?}");
        assert!(!finding.found.contains('\n'), "{finding:?}");
    }
    probed.findings.into_iter().map(|finding| (finding.check, finding.verdict)).collect()
}

#[tokio::test]
async fn a_folder_that_works_is_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("not/yet/out.zarr");
    let found = probed(source.to_str().unwrap(), Purpose::Write).await;
    assert_eq!(found, ["list", "write", "read", "create", "delete"].map(|check| (check, Verdict::Ok)));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_store_that_works_is_left_as_it_was() {
    let environment = Environment::empty();
    let found = probe("memory://lab/out.zarr", Purpose::Write, &environment, &CancellationToken::new()).await;
    assert!(found.findings.len() == 5 && found.findings.iter().all(|finding| finding.verdict == Verdict::Ok));
    let place = crate::address::locate("memory://", &environment).await.unwrap();
    assert_eq!(place.list().await.unwrap().len(), 0);
}

#[tokio::test]
async fn places_that_cannot_be_used_say_why_and_nothing_else_is_tried() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let failed = |check, kind| vec![(check, Verdict::Failed(kind))];
    let of = async |source: &str, purpose| probed(source, purpose).await;
    let file = file.to_str().unwrap();
    assert_eq!(of(file, Purpose::Write).await, failed("list", VolumeErrorKind::Data));
    assert_eq!(of("ftp://host/x", Purpose::Write).await, failed("place", VolumeErrorKind::Usage));
    assert_eq!(of("http://127.0.0.1:1/x", Purpose::Write).await, failed("write", VolumeErrorKind::Usage));
    let nothing = of(folder.path().to_str().unwrap(), Purpose::Read).await;
    assert_eq!(nothing, [("read", Verdict::Failed(VolumeErrorKind::Data)), ("list", Verdict::Ok)]);
    let found = of("/proc/haloflow/out.zarr", Purpose::Write).await;
    assert_eq!(found, [("list", Verdict::Ok), ("write", Verdict::Failed(VolumeErrorKind::Unavailable))]);
}

#[tokio::test]
async fn a_probe_that_is_stopped_before_it_begins_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    let found = probe(folder.path().to_str().unwrap(), Purpose::Write, &Environment::empty(), &stop).await;
    assert_eq!(found.findings, []);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
