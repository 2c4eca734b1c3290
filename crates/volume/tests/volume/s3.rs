//! A real S3 protocol server over TCP, with signed requests.

use haloflow_geometry::Box3;
use haloflow_volume::VolumeErrorKind;

use crate::s3_server::S3Server;
use crate::support::{assert_holds, check, described, make, open, request};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_go_to_s3_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("bucket")).unwrap();
    let server = S3Server::start(folder.path()).await;
    let environment = server.environment("test-secret");
    let input = described("zyx", [9, 10, 11]);
    for sharded in [false, true] {
        let url = format!("s3://bucket/my vol/a+b-{sharded}.zarr");
        let mut output = request(&url);
        (output.chunk, output.shard) = (Some([4; 3]), sharded.then_some([8; 3]));
        make(output.clone(), &input, 1, &environment).await.unwrap();
        let reader = open(&url, &environment).await.unwrap();
        assert_holds(&reader.read(Box3::new([1, 2, 3], [9, 9, 11])).await.unwrap(), &[0]);
        assert_eq!(check(output.clone(), &input, &environment).await.unwrap_err().kind, VolumeErrorKind::Exists);
        output.overwrite = true;
        make(output, &input, 1, &environment).await.unwrap();
    }
    let error = open("s3://bucket/my vol/a+b-true.zarr", &server.environment("wrong")).await.unwrap_err();
    assert_eq!(error.kind, VolumeErrorKind::Unavailable);
    assert_eq!(open("s3://bucket/other", &environment).await.unwrap_err().kind, VolumeErrorKind::Data);
    let error = open("s3://no-such-bucket/x", &environment).await.unwrap_err();
    assert!(error.message.contains("no-such-bucket"), "{error}");
}
