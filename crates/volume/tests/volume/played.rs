//! A server that is played request by request.

use std::sync::{Arc, Mutex};

use haloflow_volume::{Environment, Network};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const SECRET: &str = "hunter2-secret";
pub(crate) const TOKEN: &str = "hunter2-token";

/// A played server: its endpoint, and the heads of the requests it has seen.
pub(crate) struct Played {
    pub(crate) endpoint: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Played {
    /// Has `part` answer every connection's one request.
    pub(crate) async fn by<F: Future<Output = ()> + Send>(
        part: impl Fn(String, TcpStream) -> F + Clone + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (part, seen) = (part.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = socket.read_u8().await else { return };
                        head.push(byte);
                    }
                    let head = String::from_utf8(head).unwrap();
                    seen.lock().unwrap().push(head.clone());
                    part(head, socket).await;
                });
            }
        });
        Self { endpoint, heads }
    }

    pub(crate) fn environment(&self, more: &[(&str, &str)], network: Network) -> Environment {
        let own = [
            ("AWS_ENDPOINT_URL", &*self.endpoint),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_SESSION_TOKEN", TOKEN),
        ];
        let variables = own.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Environment::with_network(variables.collect::<Vec<_>>(), network)
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// Answers a request.
pub(crate) async fn answer(mut socket: TcpStream, status: &str, headers: &str, body: &str) {
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}");
    // The client may have gone.
    drop(socket.write_all(text.as_bytes()).await);
}
