//! A collector of traces on loopback: takes OTLP over HTTP, as protobuf, and keeps every span.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// Its threads end with the process.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    taken: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

impl Collector {
    /// Starts to listen.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let taken = Arc::<Mutex<Vec<_>>>::default();
        let kept = Arc::clone(&taken);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || take(socket, &kept));
            }
        });
        Self { address, taken }
    }

    /// Its address, as OpenTelemetry wants it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every span that has come.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        let taken = self.taken.lock().unwrap();
        let scopes = taken.iter().flat_map(|request| &request.resource_spans).flat_map(|spans| &spans.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    /// The name of the service in whose name they came.
    #[must_use]
    pub fn service(&self) -> String {
        let taken = self.taken.lock().unwrap();
        let resource = taken[0].resource_spans[0].resource.as_ref().expect("spans have a resource");
        attribute(&resource.attributes, "service.name").expect("the resource names its service")
    }
}

/// Takes one request and answers it. What came is kept before that, so that whoever has the answer finds it.
fn take(mut socket: TcpStream, kept: &Mutex<Vec<ExportTraceServiceRequest>>) {
    let mut reader = BufReader::new(socket.try_clone().unwrap());
    let (mut head, mut length): (Vec<String>, usize) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        length = line.strip_prefix("content-length: ").map_or(length, |told| told.parse().unwrap());
        head.push(line);
    }
    assert!(head[0].starts_with("post /v1/traces "), "{head:?}");
    assert!(head.contains(&"content-type: application/x-protobuf".to_owned()), "{head:?}");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    kept.lock().unwrap().push(ExportTraceServiceRequest::decode(&body[..]).unwrap());
    let answer =
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    socket.write_all(answer.as_bytes()).unwrap();
}

/// An attribute as text.
#[must_use]
pub fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == name)?.value.clone()?.value?;
    Some(match value {
        any_value::Value::StringValue(text) => text,
        any_value::Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}
