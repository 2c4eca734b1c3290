//! Events as they happen (server-sent events): how a job is now, every time that it changes. A stream of one job ends with the job.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::Stream;
use futures::stream::unfold;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::take::Id;
use crate::daemon::Daemon;
use crate::job::{JobId, JobState, JobStatus};
use crate::problem::Problem;

/// Between two signs of life.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

type Told = Result<Event, Infallible>;

/// What a stream of one job still has to tell.
enum Telling {
    /// How things are now.
    Now(Receiver<Arc<JobStatus>>),
    /// What comes.
    News(Receiver<Arc<JobStatus>>),
    /// Nothing more.
    Nothing,
}

/// Follows a job: an event `status` with the job at once and whenever it changes; the last one is that of its end, or of its pause.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/events", tag = "events", params(("id" = i64, Path, minimum = 1)),
    responses(
        (status = 200, description = "Events named `status`, each with a job as JSON", body = String, content_type = "text/event-stream"),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn of_job(State(daemon): State<Daemon>, Id(id): Id) -> Result<Sse<impl Stream<Item = Told>>, Problem> {
    // Listening begins before the first look, so that nothing is lost between the two.
    let news = daemon.shared.events.listen();
    daemon.status(id).await?;
    let events = unfold((daemon, Telling::Now(news)), move |(daemon, telling)| async move {
        let (status, news) = next_of(&daemon, id, telling).await?;
        let telling = if is_last(&status) { Telling::Nothing } else { Telling::News(news) };
        Some((Ok(event(&status)), (daemon, telling)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

fn is_last(status: &JobStatus) -> bool {
    status.state.has_ended() || status.state == JobState::Paused
}

async fn next_of(daemon: &Daemon, id: JobId, telling: Telling) -> Option<(JobStatus, Receiver<Arc<JobStatus>>)> {
    let mut news = match telling {
        Telling::Nothing => return None,
        Telling::Now(news) => return Some((daemon.status(id).await.ok()?, news)),
        Telling::News(news) => news,
    };
    loop {
        match daemon.shared.stopping.run_until_cancelled(news.recv()).await? {
            Ok(status) if status.id == id => return Some((JobStatus::clone(&status), news)),
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return Some((daemon.status(id).await.ok()?, news)),
            Err(RecvError::Closed) => return None,
        }
    }
}

/// Follows all jobs: an event `status` with a job whenever one changes, and an event `missed` where some were left out: list anew then.
#[utoipa::path(
    get, path = "/v1/events", tag = "events",
    responses((status = 200, description = "Events named `status`, each with a job as JSON, and `missed`", body = String, content_type = "text/event-stream"))
)]
pub(super) async fn of_all(State(daemon): State<Daemon>) -> Sse<impl Stream<Item = Told>> {
    let (news, stopping) = (daemon.shared.events.listen(), daemon.shared.stopping.clone());
    let events = unfold((news, stopping), |(mut news, stopping)| async move {
        let told = match stopping.run_until_cancelled(news.recv()).await? {
            Ok(status) => event(&status),
            Err(RecvError::Lagged(missed)) => Event::default().event("missed").data(missed.to_string()),
            Err(RecvError::Closed) => return None,
        };
        Some((Ok(told), (news, stopping)))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

fn event(status: &JobStatus) -> Event {
    let data = serde_json::to_string(status).unwrap_or_default();
    Event::default().event("status").data(data)
}
