//! An S3 server on loopback that checks signatures, for tests.

use std::path::Path;

use haloflow_volume::Environment;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Serves a folder, one sub-folder per bucket, until it is dropped.
pub(crate) struct S3Server {
    endpoint: String,
    serving: JoinHandle<()>,
}

impl S3Server {
    pub(crate) async fn start(folder: &Path) -> Self {
        let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder).unwrap());
        service.set_auth(SimpleAuth::from_single("test-key", "test-secret"));
        let service = service.build();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                // Without this each answer waits for the client's delayed acknowledgement.
                socket.set_nodelay(true).unwrap();
                let service = service.clone();
                tokio::spawn(async move {
                    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { endpoint, serving }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The variables a client needs.
    pub(crate) fn environment(&self, secret: &str) -> Environment {
        let variables = [
            ("AWS_ENDPOINT_URL", self.endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "test-key"),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("AWS_REGION", "us-east-1"),
        ];
        Environment::new(variables.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
