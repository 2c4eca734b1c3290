//! What is sent to a store, and how slow and silent ones are taken: against a server that is played request by request.

use std::time::{Duration, Instant};

use haloflow_geometry::Box3;
use haloflow_volume::{Environment, Network, VolumeErrorKind};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::played::{Played, SECRET, TOKEN, answer};
use crate::s3_server::S3Server;
use crate::support::{assert_holds, described, make, open, request};

/// A network that gives up soon.
fn hasty() -> Network {
    Network { stall: Duration::from_millis(400), deadline: Duration::from_millis(100), ..Network::default() }
}

#[tokio::test]
async fn the_bucket_is_asked_for_its_region_unless_somebody_knows_it() {
    let played = Played::by(async |head, socket| {
        let status = if head.starts_with("HEAD /bucket ") { "403 Forbidden" } else { "404 Not Found" };
        answer(socket, status, "x-amz-bucket-region: eu-central-1\r\n", "").await;
    });
    let played = played.await;
    for (more, region) in [(&[][..], "/eu-central-1/s3/"), (&[("AWS_REGION", "us-west-2")], "/us-west-2/s3/")] {
        open("s3://bucket/x", &played.environment(more, hasty())).await.unwrap_err();
        let last = played.heads().pop().unwrap();
        assert!(last.to_ascii_lowercase().contains("authorization") && last.contains(region), "{last}");
    }
    let asked = played.heads().iter().filter(|head| head.starts_with("HEAD /bucket ")).count();
    assert_eq!(asked, 1);
}

#[tokio::test]
async fn a_wrong_region_is_told_with_the_right_one() {
    let played = Played::by(async |_, socket| {
        answer(socket, "301 Moved Permanently", "x-amz-bucket-region: eu-central-1\r\n", "").await;
    });
    let environment = played.await.environment(&[("AWS_REGION", "us-west-2")], hasty());
    let error = open("s3://bucket/x", &environment).await.unwrap_err();
    assert!(error.message.contains("set AWS_REGION=eu-central-1"), "{error}");
}

#[tokio::test]
async fn anonymous_requests_are_not_signed() {
    let played = Played::by(async |_, socket| answer(socket, "404 Not Found", "", "").await).await;
    let network = Network { anonymous: true, ..hasty() };
    open("s3://bucket/x", &played.environment(&[], network)).await.unwrap_err();
    assert!(played.heads().len() >= 4);
    assert!(played.heads().iter().all(|head| !head.to_ascii_lowercase().contains("authorization")));
}

#[tokio::test]
async fn no_secret_is_in_an_error_even_if_the_store_repeats_it() {
    let played = Played::by(async |head, socket| {
        let body = format!(
            "<Error><Code>SignatureDoesNotMatch</Code><Message>No.</Message><CanonicalRequest>{head}</CanonicalRequest></Error>"
        );
        answer(socket, "403 Forbidden", "", &body).await;
    });
    let played = played.await;
    let environment = played.environment(&[("AWS_REGION", "us-west-2")], hasty());
    let error = open("s3://bucket/x", &environment).await.unwrap_err();
    assert!(error.message.contains("403 Forbidden (SignatureDoesNotMatch: No.)"), "{error}");
    assert!(played.heads()[0].contains(TOKEN), "the store was told the token");
    for text in [format!("{error} {error:?}"), format!("{environment:?}")] {
        assert!(!text.contains(SECRET) && !text.contains(TOKEN), "{text}");
    }
}

#[tokio::test]
async fn the_number_of_attempts_is_that_of_the_environment() {
    let played = Played::by(async |_, socket| answer(socket, "500 Oh", "", "").await).await;
    let variables = [("AWS_MAX_ATTEMPTS", "2"), ("AWS_REGION", "us-west-2")];
    let environment = played.environment(&variables, Network::default());
    let error = open("s3://bucket/x", &environment).await.unwrap_err();
    assert_eq!(error.kind, VolumeErrorKind::Transient);
    assert!(error.message.contains("given up after 2 tries"), "{error}");
    // Four objects tell what is stored somewhere.
    assert_eq!(played.heads().len(), 4 * 2);
}

/// Takes an upload in, a little at each tick; nothing at all if there are no ticks.
async fn take_in(head: String, mut socket: TcpStream, ticks: Option<Duration>) {
    if head.starts_with("GET") && !head.contains("list-type=2") {
        return answer(socket, "404 Not Found", "", "").await;
    }
    if head.starts_with("GET") {
        let empty = "<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>";
        return answer(socket, "200 OK", "", empty).await;
    }
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    let mut left: usize = length.unwrap().parse().unwrap();
    let Some(ticks) = ticks.filter(|_| left > 0) else { return std::future::pending().await };
    let mut ticks = tokio::time::interval(ticks);
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        ticks.tick().await;
        let length = left.min(buffer.len());
        socket.read_exact(&mut buffer[..length]).await.unwrap();
        left -= length;
    }
    answer(socket, "200 OK", "ETag: \"x\"\r\n", "").await;
}

/// Writes one chunk of 32 MiB.
async fn write_large(played: Played) -> (Result<(), haloflow_volume::VolumeError>, Duration) {
    let environment = played.environment(&[("AWS_REGION", "us-west-2")], hasty());
    let mut request = request("s3://bucket/out.zarr");
    (request.chunk, request.compressor) = (Some([64, 512, 512]), Some("none".to_owned()));
    let since = Instant::now();
    let written = make(request, &described("zyx", [64, 512, 512]), 1, &environment).await;
    (written.map(drop), since.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_may_be_slow_but_not_stall() {
    let slow = Played::by(async |head, socket| take_in(head, socket, Some(Duration::from_millis(40))).await).await;
    let (written, took) = write_large(slow).await;
    written.unwrap();
    assert!(took > 2 * hasty().stall, "{took:?} is not slow");
    let silent = Played::by(async |head, socket| {
        let ticks = (!head.contains("/c/0/0/0")).then_some(Duration::from_millis(1));
        take_in(head, socket, ticks).await;
    });
    let (written, _) = write_large(silent.await).await;
    let error = written.unwrap_err();
    assert!(error.message.contains("no byte came or went for 0.4 s"), "{error}");
}

#[tokio::test]
async fn credentials_region_and_endpoint_come_from_profile_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("bucket")).unwrap();
    let server = S3Server::start(folder.path()).await;
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let config = format!("[profile lab]\nregion = us-east-1\nendpoint_url = {}\n", server.endpoint());
    std::fs::write(path("config"), config).unwrap();
    let keys =
        "[other]\naws_access_key_id = x\n[lab]\naws_access_key_id = test-key\naws_secret_access_key = test-secret\n";
    std::fs::write(path("credentials"), keys).unwrap();
    let of = |profile: &str| {
        let variables = [
            ("AWS_PROFILE", profile.to_owned()),
            ("AWS_CONFIG_FILE", path("config")),
            ("AWS_SHARED_CREDENTIALS_FILE", path("credentials")),
        ];
        Environment::new(variables.map(|(name, value)| (name.to_owned(), value)))
    };
    make(request("s3://bucket/v.zarr"), &described("zyx", [5, 6, 7]), 1, &of("lab")).await.unwrap();
    let reader = open("s3://bucket/v.zarr", &of("lab")).await.unwrap();
    assert_holds(&reader.read(Box3::of_shape([5, 6, 7])).await.unwrap(), &[0]);
    let error = open("s3://bucket/v.zarr", &of("none")).await.unwrap_err();
    assert_eq!(error.kind, VolumeErrorKind::Usage);
    assert!(error.message.contains("AWS_PROFILE is none"), "{error}");
}
