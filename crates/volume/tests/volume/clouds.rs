//! Google Cloud Storage and Azure by their own protocols over TCP: what a volume needs of them, without checking signatures.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use haloflow_geometry::Box3;
use haloflow_volume::{Environment, ZarrFormat};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{assert_holds, described, make, open, request};

/// Objects by the path of their URL, and the signatures that requests bore.
#[derive(Default)]
struct Stored {
    objects: BTreeMap<String, Vec<u8>>,
    authorisations: Vec<String>,
}

type Cloud = Arc<Mutex<Stored>>;

/// How a store tells what it holds under a path: its keys, relative to the bucket, and sizes.
type Listing = fn(&[(String, usize)]) -> String;

/// Serves a store at the URL that this gives.
async fn serve(listing: Listing) -> (String, Cloud) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let cloud = Cloud::default();
    let served = Arc::clone(&cloud);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(answer(socket, Arc::clone(&served), listing));
        }
    });
    (url, cloud)
}

async fn answer(mut socket: TcpStream, cloud: Cloud, listing: Listing) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = socket.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = decoded(path);
    let mut sent = vec![0; header(&head, "content-length").map_or(0, |length| length.parse().unwrap())];
    socket.read_exact(&mut sent).await.unwrap();
    let (status, mut body) = {
        let mut cloud = cloud.lock().unwrap();
        cloud.authorisations.extend(header(&head, "authorization"));
        match method {
            "PUT" => {
                cloud.objects.insert(path, sent);
                ("201 Created".to_owned(), Vec::new())
            }
            _ if query.contains("prefix=") => ("200 OK".to_owned(), listed(&cloud, &path, query, listing).into_bytes()),
            _ => match cloud.objects.get(&path) {
                Some(bytes) => ranged(&head, bytes),
                None => ("404 Not Found".to_owned(), Vec::new()),
            },
        }
    };
    let headers = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"tag\"\r\nLast-Modified: Mon, 30 Nov 2026 00:00:00 GMT\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    if method == "HEAD" {
        body.clear();
    }
    let _ = socket.write_all(&[headers.as_bytes(), &body].concat()).await;
}

/// A percent-encoded path, without slashes at its ends.
fn decoded(path: &str) -> String {
    object_store::path::Path::from_url_path(path).unwrap().to_string()
}

fn header(head: &str, name: &str) -> Option<String> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned());
    found.next()
}

fn listed(cloud: &Stored, bucket: &str, query: &str, listing: Listing) -> String {
    let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap();
    let (prefix, bucket) = (decoded(&prefix.replace('+', "%20")), format!("{bucket}/"));
    let keys = cloud.objects.iter().filter_map(|(path, bytes)| Some((path.strip_prefix(&bucket)?, bytes.len())));
    let inside: Vec<_> =
        keys.filter(|(key, _)| key.starts_with(&prefix)).map(|(key, size)| (key.to_owned(), size)).collect();
    listing(&inside)
}

fn ranged(head: &str, bytes: &[u8]) -> (String, Vec<u8>) {
    let range = header(head, "range").or_else(|| header(head, "x-ms-range"));
    let Some(range) = range else { return ("200 OK".to_owned(), bytes.to_vec()) };
    let (start, stop) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let (start, stop) = match start.parse::<usize>() {
        Ok(start) => (start, bytes.len().min(stop.parse::<usize>().unwrap() + 1)),
        Err(_) => (bytes.len().saturating_sub(stop.parse().unwrap()), bytes.len()),
    };
    let status = format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{}", stop - 1, bytes.len());
    (status, bytes[start..stop].to_vec())
}

fn google_listing(inside: &[(String, usize)]) -> String {
    let contents = inside.iter().map(|(key, size)| {
        format!("<Contents><Key>{key}</Key><LastModified>2026-11-30T00:00:00.000Z</LastModified><ETag>\"tag\"</ETag><Size>{size}</Size></Contents>")
    });
    let contents: String = contents.collect();
    format!(
        "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
    )
}

fn azure_listing(inside: &[(String, usize)]) -> String {
    let blobs = inside.iter().map(|(key, size)| {
        format!(
            "<Blob><Name>{key}</Name><Properties><Last-Modified>Mon, 30 Nov 2026 00:00:00 GMT</Last-Modified><Etag>tag</Etag>\
             <Content-Length>{size}</Content-Length><Content-Type>application/octet-stream</Content-Type></Properties></Blob>"
        )
    });
    let blobs: String = blobs.collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>{blobs}</Blobs><NextMarker /></EnumerationResults>"
    )
}

/// Writes a volume, plain and sharded, and reads it back; a second plan finds it there.
async fn assert_round_trip(base: &str, environment: &Environment, cloud: &Cloud) {
    for shard in [None, Some([8; 3])] {
        let url = format!("{base}/my lab/{}.zarr", if shard.is_some() { "shards" } else { "chunks" });
        let mut request = request(&url);
        (request.format, request.chunk, request.shard) = (Some(ZarrFormat::V3), Some([4; 3]), shard);
        make(request.clone(), &described("zyx", [8, 8, 8]), 1, environment).await.unwrap();
        let reader = open(&url, environment).await.unwrap();
        assert_holds(&reader.read(Box3::of_shape([8; 3])).await.unwrap(), &[0]);
        assert_holds(&reader.read(Box3::new([4, 0, 0], [8, 4, 8])).await.unwrap(), &[0]);
        let told = make(request, &described("zyx", [8, 8, 8]), 1, environment).await.unwrap_err().message;
        assert!(told.contains("exists"), "{told}");
    }
    assert!(cloud.lock().unwrap().objects.keys().any(|path| path.ends_with("/my lab/chunks.zarr/0/c/1/1/1")));
}

#[tokio::test]
async fn a_volume_goes_to_google_cloud_storage_and_back() {
    let (url, cloud) = serve(google_listing).await;
    let key = json!({"gcs_base_url": url, "disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""});
    let environment = Environment::new([("GOOGLE_SERVICE_ACCOUNT_KEY".to_owned(), key.to_string())]);
    assert_round_trip("gs://bucket", &environment, &cloud).await;
}

#[tokio::test]
async fn a_volume_goes_to_azure_and_back_signed() {
    let (url, cloud) = serve(azure_listing).await;
    let variables = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0"),
        ("AZURE_STORAGE_ENDPOINT", url.as_str()),
    ];
    let environment = Environment::new(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_round_trip("az://container", &environment, &cloud).await;
    let cloud = cloud.lock().unwrap();
    assert!(!cloud.authorisations.is_empty());
    assert!(
        cloud.authorisations.iter().all(|signed| signed.starts_with("SharedKey account:")),
        "{:?}",
        cloud.authorisations
    );
}
