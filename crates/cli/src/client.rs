//! The commands that talk to a daemon.

mod args;
mod events;
mod jobs;
mod server;
mod submit;
mod watch;

use std::process::ExitCode;

pub(crate) use args::{HealthCommand, JobCommand, JobsCommand, LogsCommand, ServerArgs, SubmitCommand};

use crate::exit;
use crate::run::fail;
use server::Server;

/// Why a command could not do what it was asked: sentences, and an exit code.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Vec<String>, pub(crate) u8);

/// Runs `work` against the daemon that was named.
fn with<Work: Future<Output = Result<ExitCode, Refused>>>(
    args: &ServerArgs,
    work: impl FnOnce(Server) -> Work,
) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&[format!("the async runtime cannot start: {error}")], exit::SOFTWARE),
    };
    let done = Server::new(args).map(work).map(|work| runtime.block_on(work));
    match done.and_then(|done| done) {
        Ok(code) => code,
        Err(Refused(sentences, code)) => fail(&sentences, code),
    }
}

/// `haloflow submit`.
pub(crate) fn submit(command: &SubmitCommand) -> ExitCode {
    with(&command.server, async |server| submit::submit(&server, command).await)
}

/// `haloflow jobs`.
pub(crate) fn jobs(command: &JobsCommand) -> ExitCode {
    with(&command.server, async |server| jobs::list(&server, command).await)
}

/// `haloflow watch`.
pub(crate) fn watch(command: &JobCommand) -> ExitCode {
    with(&command.server, async |server| watch::watch(&server, command.id).await)
}

/// `haloflow cancel`, `pause` and `resume`.
pub(crate) fn change(command: &JobCommand, what: &'static str) -> ExitCode {
    with(&command.server, async |server| jobs::change(&server, command.id, what).await)
}

/// `haloflow health`.
pub(crate) fn health(command: &HealthCommand) -> ExitCode {
    with(&command.server, async |server| jobs::health(&server).await)
}

/// `haloflow logs`.
pub(crate) fn logs(command: &LogsCommand) -> ExitCode {
    with(&command.server, async |server| jobs::logs(&server, command).await)
}
