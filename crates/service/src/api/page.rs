//! The page: everything that it needs is in the binary.

use axum::Router;
use axum::http::header;
use axum::routing::get;

use crate::daemon::Daemon;

/// The page's files: address, kind, content.
const FILES: [(&str, &str, &str); 6] = [
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/app.js", "text/javascript; charset=utf-8", include_str!("../page/app.js")),
    ("/plots.js", "text/javascript; charset=utf-8", include_str!("../page/plots.js")),
    ("/numbers.js", "text/javascript; charset=utf-8", include_str!("../page/numbers.js")),
    ("/style.css", "text/css; charset=utf-8", include_str!("../page/style.css")),
    ("/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
];

/// Serves the page.
pub(super) fn routes(router: Router<Daemon>) -> Router<Daemon> {
    FILES.into_iter().fold(router, |router, (address, kind, content)| {
        router.route(address, get(move || async move { ([(header::CONTENT_TYPE, kind)], content) }))
    })
}
