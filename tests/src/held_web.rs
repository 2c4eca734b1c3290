//! A web server on loopback that holds the answer to some requests for ever.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Serves a folder. Its threads end with the process.
#[derive(Debug)]
pub struct HeldWeb {
    address: SocketAddr,
    held: Receiver<TcpStream>,
}

impl HeldWeb {
    /// Serves `folder`, but holds every answer to a request for a file whose name ends with `held`.
    #[must_use]
    pub fn serve(folder: PathBuf, held: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, receiver) = channel();
        let held = held.to_owned();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (folder, held, sender) = (folder.clone(), held.clone(), sender.clone());
                std::thread::spawn(move || answer(socket, &folder, &held, &sender));
            }
        });
        Self { address, held: receiver }
    }

    /// The URL of the folder.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until a request is held. The connection stays open as long as what is returned lives.
    #[must_use]
    pub fn wait_until_held(&self) -> TcpStream {
        self.held.recv_timeout(Duration::from_secs(60)).expect("a request that is held")
    }
}

/// Answers one request; the client has to connect again for the next.
fn answer(mut socket: TcpStream, folder: &std::path::Path, held: &str, sender: &Sender<TcpStream>) {
    let lines = BufReader::new(socket.try_clone().unwrap()).lines().map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let Some((method, path)) = head.first().and_then(|line| line.split_once(' ')) else { return };
    let path = path.split(' ').next().unwrap_or_default().trim_start_matches('/');
    if path.ends_with(held) {
        // Nobody may be waiting.
        drop(sender.send(socket));
        return;
    }
    let (status, body) = match std::fs::read(folder.join(path)) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let body = if method == "HEAD" { &[][..] } else { &body };
    // The client may have gone.
    drop(socket.write_all(&[head.as_bytes(), body].concat()));
}
