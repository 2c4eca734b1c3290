//! A plain web server that knows ranges, and one that breaks off.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use haloflow_geometry::Box3;
use haloflow_volume::Environment;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{assert_holds, described, make, open, request};

/// Serves the files of a folder. If `broken` is given, the first answer to each request line breaks off in its body.
async fn serve(folder: PathBuf, broken: Option<Arc<Mutex<HashSet<String>>>>) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(answer(socket, folder.clone(), broken.clone()));
        }
    });
    url
}

async fn answer(mut socket: TcpStream, folder: PathBuf, broken: Option<Arc<Mutex<HashSet<String>>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = socket.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().trim_start_matches('/').replace("%20", " ");
    let text = match std::fs::read(folder.join(path)) {
        Err(_) => ("404 Not Found".to_owned(), Vec::new()),
        Ok(bytes) => ranged(&head, &bytes),
    };
    let (status, mut body) = text;
    let headers = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    if head.starts_with("HEAD") {
        body.clear();
    }
    let first_time = broken.is_some_and(|seen| seen.lock().unwrap().insert(head));
    if first_time {
        body.truncate(body.len() / 2);
    }
    let _ = socket.write_all(&[headers.as_bytes(), &body].concat()).await;
}

fn ranged(head: &str, bytes: &[u8]) -> (String, Vec<u8>) {
    let range =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    let Some(range) = range else { return ("200 OK".to_owned(), bytes.to_vec()) };
    let (start, stop) = range.split_once('-').unwrap();
    let (start, stop) = match start.parse::<usize>() {
        Ok(start) => (start, stop.parse::<usize>().unwrap() + 1),
        Err(_) => (bytes.len().saturating_sub(stop.parse().unwrap()), bytes.len()),
    };
    let status = format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{}", stop - 1, bytes.len());
    (status, bytes[start..stop].to_vec())
}

async fn volume(folder: &Path) {
    let mut request = request(folder.join("my vol.zarr").to_str().unwrap());
    (request.chunk, request.shard) = (Some([4; 3]), Some([8; 3]));
    make(request, &described("zyx", [9, 10, 11]), 1, &Environment::empty()).await.unwrap();
}

#[tokio::test]
async fn volumes_are_read_from_a_web_server_even_if_bodies_break_off() {
    let folder = tempfile::tempdir().unwrap();
    volume(folder.path()).await;
    for broken in [None, Some(Arc::default())] {
        let url = serve(folder.path().to_owned(), broken).await;
        let reader = open(&format!("{url}/my vol.zarr"), &Environment::empty()).await.unwrap();
        assert_holds(&reader.read(Box3::of_shape([9, 10, 11])).await.unwrap(), &[0]);
    }
}
