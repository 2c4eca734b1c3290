//! What every request has to pass before anybody looks at what it asks: host, rate, origin, token, and how many are worked on.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tokio::sync::Semaphore;

use crate::daemon::Daemon;
use crate::problem::Problem;
use crate::rate::Rates;

/// What the guard remembers.
#[derive(Clone)]
pub(crate) struct Guard {
    daemon: Daemon,
    rates: Arc<Rates>,
    working: Arc<Semaphore>,
}

impl Guard {
    pub(crate) fn new(daemon: &Daemon) -> Self {
        let limits = daemon.shared.settings.limits;
        Self {
            daemon: daemon.clone(),
            rates: Arc::new(Rates::new(limits.rate)),
            working: Arc::new(Semaphore::new(limits.requests)),
        }
    }

    fn admits(&self, request: &Request) -> Result<(), Problem> {
        let headers = request.headers();
        let host = host(request).ok_or_else(|| refused("wrong-host", "the request names no host".into()))?;
        if !self.knows(&host) {
            return Err(refused(
                "wrong-host",
                format!("this daemon is not {host}; if it is to be reached by that name, add it to `hosts`"),
            ));
        }
        let path = request.uri().path();
        if !path.starts_with("/data/")
            && let Some(origin) = headers.get(header::ORIGIN)
            && !same_origin(origin, &host)
        {
            return Err(refused("wrong-origin", "pages of other sites may not use this daemon".into()));
        }
        // Where a browser leaves the origin out it still says whose page asks.
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
        if !reads && site.is_some_and(|site| site != b"same-origin" && site != b"none") {
            return Err(refused("wrong-origin", "pages of other sites may not use this daemon".into()));
        }
        let open = !["/v1", "/metrics"].iter().any(|closed| path == *closed || path.starts_with(&format!("{closed}/")));
        if open { Ok(()) } else { self.knows_token(headers) }
    }

    /// Whether `host` is a name of this daemon. With a name that somebody else chose, a page of theirs would be of our origin.
    fn knows(&self, host: &str) -> bool {
        let settings = &self.daemon.shared.settings;
        let name = without_port(host);
        let named = settings.hosts.iter().any(|known| known.eq_ignore_ascii_case(name));
        let local = name.eq_ignore_ascii_case("localhost") || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        // Where others may reach it the token is what keeps them out, unless names were given.
        named || local || (settings.token.is_some() && settings.hosts.is_empty())
    }

    fn knows_token(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(token) = &self.daemon.shared.settings.token else { return Ok(()) };
        let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let bearer = given.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
        match bearer {
            Some((_, given)) if token.is(given.trim_ascii()) => Ok(()),
            Some(_) => Err(Problem::new(StatusCode::UNAUTHORIZED, "wrong-token", "the token is wrong")),
            None => Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "no-token",
                "this daemon wants a token: send the header `Authorization: Bearer TOKEN`",
            )),
        }
    }
}

/// Lets a request through, or says why not.
pub(crate) async fn guard(
    State(guard): State<Guard>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let is_data = request.uri().path().starts_with("/data/");
    let mut response = if guard.rates.admit(peer.ip(), Instant::now()) {
        match guard.admits(&request) {
            Ok(()) => worked_on(&guard, request, next).await,
            Err(problem) => problem.into_response(),
        }
    } else {
        let detail =
            format!("more than `rate` ({}) requests per second came from {}", guard.rates_per_second(), peer.ip());
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", detail);
        Problem { retry_after: Some(1), ..problem }.into_response()
    };
    protect(response.headers_mut(), is_data);
    response
}

impl Guard {
    fn rates_per_second(&self) -> f64 {
        self.daemon.shared.settings.limits.rate
    }
}

/// A request holds its place until its answer begins; an event stream gives it back then.
async fn worked_on(guard: &Guard, request: Request, next: Next) -> Response {
    let live = request.uri().path() == "/health/live";
    match guard.working.try_acquire() {
        Ok(_place) => next.run(request).await,
        // Whoever asks whether it lives gets an answer also when it has its hands full.
        Err(_) if live => next.run(request).await,
        Err(_) => Problem::busy("`requests-at-once` requests are being worked on; try again", 1).into_response(),
    }
}

fn protect(headers: &mut HeaderMap, is_data: bool) {
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let sharing = if is_data { "cross-origin" } else { "same-origin" };
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (http::HeaderName::from_static("cross-origin-resource-policy"), sharing),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// The host that a request is for, with its port.
fn host(request: &Request) -> Option<String> {
    let header = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let several = request.headers().get_all(header::HOST).iter().count() > 1;
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    let host = authority.or(header).filter(|host| !several && !host.is_empty() && !host.contains('@'))?;
    Some(host.to_owned())
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

/// Whether a page of `origin` was served by this daemon. A proxy in front may have another scheme.
fn same_origin(origin: &HeaderValue, host: &str) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let page = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    page.is_some_and(|page| page.eq_ignore_ascii_case(host))
}

fn refused(kind: &str, detail: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, kind, detail)
}

/// What a page of another site may do with data: read it.
pub(crate) fn shared_with_other_sites(method: &Method, headers: &mut HeaderMap) {
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "content-length, content-range, accept-ranges"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if method == Method::OPTIONS {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("range"));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
        // Browsers ask this of a page on the internet that wants something of a machine at hand.
        let nearby = http::HeaderName::from_static("access-control-allow-private-network");
        headers.insert(nearby, HeaderValue::from_static("true"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_not_part_of_a_name() {
        for (host, name) in [
            ("localhost:80", "localhost"),
            ("localhost", "localhost"),
            ("127.0.0.1:1", "127.0.0.1"),
            ("[::1]:8080", "[::1]"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }

    #[test]
    fn an_origin_is_the_same_only_if_it_is_this_host() {
        let same = |origin: &str| same_origin(&HeaderValue::from_str(origin).unwrap(), "localhost:80");
        assert!(same("http://localhost:80") && same("https://LOCALHOST:80"));
        for other in ["null", "http://localhost", "http://localhost:81", "http://localhost:80.evil.org", "file://"] {
            assert!(!same(other), "{other}");
        }
    }
}
