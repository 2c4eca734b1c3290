//! An S3 server in this process, on loopback: the real protocol over real TCP, without an account.
//!
//! It serves a folder, one sub-folder per bucket, and checks the signature of every request. A script may have some of them fail.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_LENGTH;
use hyper::service::Service;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::faults::{Ended, Fault, Faults, Script, SharedFaults, is_of_body, maim, shift};
use crate::files::SwiftFiles;

const ACCESS_KEY: &str = "haloflow-test-key";
const SECRET_KEY: &str = "haloflow-test-secret";
const REGION: &str = "us-east-1";

/// An S3 server on `127.0.0.1`, on a port and a thread of its own. Dropping it cuts its connections and joins the thread.
pub struct S3Server {
    address: SocketAddr,
    counts: Arc<Counts>,
    faults: SharedFaults,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// What a server has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct S3Counts {
    /// Requests of any kind, refused ones too.
    pub requests: u64,
    /// Requests for objects and listings.
    pub gets: u64,
    /// Requests that store an object or a part of one.
    pub puts: u64,
    /// Bytes of the bodies sent, without headers. A body counts as far as it was sent.
    pub bytes_sent: u64,
    /// Bytes of the bodies that clients announced, without headers.
    pub bytes_received: u64,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    gets: AtomicU64,
    puts: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
}

impl S3Server {
    /// Starts to serve the folder `root`, which must exist, with `bucket` in it, which is made if it does not exist. When this
    /// returns, the server accepts connections.
    ///
    /// # Errors
    /// If the bucket's folder cannot be made, or the system gives no port or no thread.
    pub fn start(root: impl AsRef<Path>, bucket: &str) -> Result<Self> {
        Self::serve(root.as_ref(), bucket, None, false)
    }

    /// As [`start`](Self::start), on as many threads as there are processors and with objects read whole: so that a benchmark does not
    /// measure the server.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_swift(root: impl AsRef<Path>, bucket: &str) -> Result<Self> {
        Self::serve(root.as_ref(), bucket, None, true)
    }

    /// As [`start`](Self::start), with requests that fail as `script` wants it.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_faulty(root: impl AsRef<Path>, bucket: &str, script: Box<Script>) -> Result<Self> {
        Self::serve(root.as_ref(), bucket, Some(Arc::new(Faults::new(script))), false)
    }

    fn serve(root: &Path, bucket: &str, faults: SharedFaults, swift: bool) -> Result<Self> {
        let folder = root.join(bucket);
        std::fs::create_dir_all(&folder).with_context(|| format!("the bucket {} cannot be made", folder.display()))?;
        let files = s3s_fs::FileSystem::new(root);
        let files =
            files.map_err(|error| anyhow::anyhow!("the folder {} cannot be served: {error:?}", root.display()))?;
        let mut service = match swift {
            true => S3ServiceBuilder::new(SwiftFiles::new(root.to_owned(), files)),
            false => S3ServiceBuilder::new(files),
        };
        service.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let counts = Arc::new(Counts::default());
        let service = Counted { inner: service.build(), counts: Arc::clone(&counts), faults: faults.clone() };

        // Bound here and not on the runtime: the caller may be on one of its own, and may connect as soon as this returns.
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("the S3 server found no free port")?;
        listener.set_nonblocking(true).context("the S3 server's port cannot be used")?;
        let address = listener.local_addr().context("the S3 server's port is not known")?;
        let mut runtime = match swift {
            true => tokio::runtime::Builder::new_multi_thread(),
            false => tokio::runtime::Builder::new_current_thread(),
        };
        let runtime = runtime.enable_all().thread_name("s3-files").build();
        let runtime = runtime.context("the S3 server's runtime cannot be started")?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let serving = move || runtime.block_on(serve(listener, service, stopped));
        let thread = std::thread::Builder::new().name("s3-server".into()).spawn(serving);
        let thread = thread.context("the S3 server's thread cannot be started")?;
        Ok(Self { address, counts, faults, stop, thread: Some(thread) })
    }

    /// The URL that clients connect to, such as `http://127.0.0.1:40123`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The environment variables that a client needs, name and value: endpoint, credentials, region, and that plain HTTP and buckets in
    /// the path are right.
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        let endpoint = self.endpoint();
        let variables = [
            ("AWS_ENDPOINT", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            ("AWS_REGION", REGION),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false"),
        ];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    /// How many requests have failed as the script wanted it.
    #[must_use]
    pub fn injected(&self) -> usize {
        self.faults.as_ref().map_or(0, |faults| faults.injected())
    }

    /// What has been done so far.
    #[must_use]
    pub fn counts(&self) -> S3Counts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        S3Counts {
            requests: load(&counts.requests),
            gets: load(&counts.gets),
            puts: load(&counts.puts),
            bytes_sent: load(&counts.bytes_sent),
            bytes_received: load(&counts.bytes_received),
        }
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.stop.cancel();
        // A panic on the thread has been printed there; clients have seen their connections end.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Accepts connections until told to stop; the connections end with it.
async fn serve(listener: std::net::TcpListener, service: Counted, stop: CancellationToken) {
    // Fails only outside a runtime; clients would then see their connections refused.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(_) = connections.join_next() => {}
            Ok((socket, _)) = listener.accept() => {
                connections.spawn(serve_connection(socket, service.clone()));
            }
        }
    }
}

async fn serve_connection(socket: TcpStream, service: Counted) {
    // Without this each answer waits for the client's delayed acknowledgement, some 40 ms.
    drop(socket.set_nodelay(true));
    // A client that goes away in the middle is no fault of the server's.
    drop(Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await);
}

/// The service with everything that goes through it counted.
#[derive(Clone)]
struct Counted {
    inner: S3Service,
    counts: Arc<Counts>,
    faults: SharedFaults,
}

/// The body of an answer.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

impl Service<Request<Incoming>> for Counted {
    type Response = Response<AnswerBody>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.counts.request(&request);
        let counts = Arc::clone(&self.counts);
        let count_data = move |frame: hyper::body::Frame<Bytes>| {
            counts.bytes_sent.fetch_add(frame.data_ref().map_or(0, Bytes::len) as u64, Ordering::Relaxed);
            frame
        };
        let fault = self.faults.as_ref().and_then(|faults| faults.of(&request));
        let inner = self.inner.clone();
        Box::pin(async move {
            if let Some(answer) = fault.and_then(Fault::answer) {
                // What is sent is taken in first, as a store does it.
                drop(request.into_body().collect().await);
                return Ok(answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()));
            }
            if let Some(Fault::Late(milliseconds)) = fault {
                tokio::time::sleep(Duration::from_millis(milliseconds.into())).await;
            }
            if fault == Some(Fault::Reset) {
                return Err(Box::new(Ended) as _);
            }
            let answer = Service::call(&inner, request).await?;
            let answer = answer.map(|body| body.map_err(Into::into).boxed_unsync());
            let mut answer = answer;
            if let Some(Fault::Clock(seconds)) = fault {
                shift(&mut answer, seconds);
            }
            let answer = match fault {
                Some(Fault::LostReply) => return Err(Box::new(Ended) as _),
                Some(fault) if is_of_body(fault) => maim(answer, fault).await,
                _ => answer,
            };
            Ok(answer.map(|body| body.map_frame(count_data).boxed_unsync()))
        })
    }
}

impl Counts {
    fn request(&self, request: &Request<Incoming>) {
        let add = |count: &AtomicU64, amount| count.fetch_add(amount, Ordering::Relaxed);
        add(&self.requests, 1);
        match *request.method() {
            Method::GET => drop(add(&self.gets, 1)),
            Method::PUT => drop(add(&self.puts, 1)),
            _ => {}
        }
        let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        add(&self.bytes_received, length.unwrap_or(0));
    }
}
