//! Traces over OTLP: one span per block through all stages, below one for the run or the job. They go out as protobuf over HTTP, in
//! batches, on a thread of their own. A collector that does not take them costs one warning; nobody ever waits for it.

mod spans;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter as Exporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, SpanData, SpanExporter};

pub(crate) use spans::RunTrace;

/// Spans that wait to be sent; more are dropped. A span takes about half a kilobyte.
const MOST_WAITING: usize = 16_384;

/// How long the last spans may take when the process ends.
const LAST: Duration = Duration::from_secs(3);

/// Where traces go, and in whose name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    url: String,
    service: Option<String>,
}

/// Where traces go, if anywhere: the key, or what OpenTelemetry's own variables say. `variable` looks one up.
///
/// # Errors
/// A sentence, if it is no address.
pub(crate) fn target(key: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Target>, String> {
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let below = |base: &str| format!("{}/v1/traces", base.trim_end_matches('/'));
    let off = set("OTEL_SDK_DISABLED").is_some_and(|off| off.eq_ignore_ascii_case("true"));
    let [whole, base] =
        ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"].map(|name| (name, set(name)));
    let (name, typed, url) = match (key, whole, base) {
        (Some(base), ..) => ("`otlp-endpoint`", base.to_owned(), below(base)),
        _ if off => return Ok(None),
        (None, (name, Some(whole)), _) => (name, whole.clone(), whole),
        (None, _, (name, Some(base))) => (name, base.clone(), below(&base)),
        _ => return Ok(None),
    };
    let known = reqwest::Url::parse(&typed).is_ok_and(|url| {
        ["http", "https"].contains(&url.scheme()) && url.username().is_empty() && url.password().is_none()
    });
    if !known {
        // Not repeated: it may hold a password.
        return Err(format!(
            "{name} is no address of a collector: give http:// or https://, a host and a port, such as http://localhost:4318, and \
             credentials by OTEL_EXPORTER_OTLP_HEADERS"
        ));
    }
    let named = set("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|all| all.contains("service.name="));
    let service = set("OTEL_SERVICE_NAME").or_else(|| (!named).then(|| "haloflow".to_owned()));
    Ok(Some(Target { url, service }))
}

/// Sends traces. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    health: Arc<Health>,
}

/// What is known of the collector.
#[derive(Debug)]
struct Health {
    url: String,
    told: AtomicBool,
    failing: AtomicBool,
    closing: AtomicBool,
}

impl Health {
    /// Warns, the first time.
    fn tell(&self, why: &dyn std::fmt::Display) {
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!("traces cannot be sent to {}: {why}; everything goes on without them", self.url);
        }
    }
}

impl Traces {
    /// Begins to send. Nothing is asked of the collector yet.
    ///
    /// # Errors
    /// A sentence, if there can be no client.
    pub(crate) fn open(target: Target) -> Result<Self, String> {
        let Target { url, service } = target;
        let exporter = Exporter::builder().with_http().with_protocol(Protocol::HttpBinary).with_endpoint(&url).build();
        let exporter = exporter.map_err(|error| format!("traces cannot be sent to {url}: {error}"))?;
        let [told, failing, closing] = Default::default();
        let health = Arc::new(Health { url, told, failing, closing });
        let batches = BatchConfigBuilder::default().with_max_queue_size(MOST_WAITING).build();
        let watched = Watched { exporter, health: Arc::clone(&health) };
        let mut resource =
            Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        if let Some(service) = service {
            resource = resource.with_service_name(service);
        }
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(watched).with_batch_config(batches).build())
            .with_resource(resource.build())
            .build();
        Ok(Self { provider, health })
    }

    /// Begins the trace of a run or a job.
    pub(crate) fn begin(&self, name: &'static str, about: Vec<KeyValue>) -> Arc<RunTrace> {
        Arc::new(RunTrace::begin(self.provider.tracer("haloflow"), name, about))
    }

    /// Sends what is left, if the collector takes it in time. Blocks.
    pub(crate) fn close(self) {
        self.health.closing.store(true, Ordering::Relaxed);
        if let Err(error) = self.provider.shutdown_with_timeout(LAST) {
            self.health.tell(&error);
        }
    }
}

/// The exporter, and what becomes of what it sends.
#[derive(Debug)]
struct Watched {
    exporter: Exporter,
    health: Arc<Health>,
}

impl SpanExporter for Watched {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let health = &self.health;
        if health.closing.load(Ordering::Relaxed) && health.failing.load(Ordering::Relaxed) {
            return Err(OTelSdkError::InternalFailure("the collector does not answer".into()));
        }
        let sent = self.exporter.export(batch).await;
        health.failing.store(sent.is_err(), Ordering::Relaxed);
        if let Err(error) = &sent {
            health.tell(error);
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(key: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<Target>, String> {
        target(key, |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_key_wins_over_the_standard_variables() {
        let url = |key, variables: &[_]| found(key, variables).unwrap().map(|target| target.url);
        let [base, whole] =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b:1/"), ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://w:1/x")];
        assert_eq!(url(None, &[]), None);
        assert_eq!(url(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), None);
        assert_eq!(url(Some("http://k:1"), &[base, whole]).as_deref(), Some("http://k:1/v1/traces"));
        assert_eq!(url(None, &[base]).as_deref(), Some("http://b:1/v1/traces"));
        assert_eq!(url(None, &[base, whole]).as_deref(), Some("http://w:1/x"));
        assert_eq!(url(None, &[base, ("OTEL_SDK_DISABLED", "true")]), None);
    }

    #[test]
    fn the_service_has_the_name_that_is_given() {
        let service = |variables: &[_]| found(Some("http://k:1"), variables).unwrap().unwrap().service;
        assert_eq!(service(&[]).as_deref(), Some("haloflow"));
        assert_eq!(service(&[("OTEL_SERVICE_NAME", "mine")]).as_deref(), Some("mine"));
        assert_eq!(service(&[("OTEL_RESOURCE_ATTRIBUTES", "a=b,service.name=theirs")]), None);
    }

    #[test]
    fn what_is_no_address_is_told_without_its_password() {
        for wrong in ["localhost:4318", "ftp://x", "http://", "http://me:hunter2@host:4318"] {
            let told = found(Some(wrong), &[]).unwrap_err();
            assert!(told.starts_with("`otlp-endpoint` is no address") && !told.contains("hunter2"), "{told}");
        }
    }
}
