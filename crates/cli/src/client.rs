//! The commands that talk to a daemon.

mod args;
mod events;
mod jobs;
mod server;
mod submit;
mod watch;

use std::process::ExitCode;

pub(crate) use args::ClientCommand;
use args::{JobCommand, JobsCommand, LogsCommand, ServerArgs, SubmitCommand};

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

/// Runs a command to its end.
pub(crate) fn run(command: &ClientCommand) -> ExitCode {
    match command {
        ClientCommand::Submit(command) => with(&command.server, async |server| submit::submit(&server, command).await),
        ClientCommand::Jobs(command) => with(&command.server, async |server| jobs::list(&server, command).await),
        ClientCommand::Watch(command) => with(&command.server, async |server| watch::watch(&server, command.id).await),
        ClientCommand::Cancel(command) => change(command, "cancel"),
        ClientCommand::Pause(command) => change(command, "pause"),
        ClientCommand::Resume(command) => change(command, "resume"),
        ClientCommand::Health(command) => with(&command.server, async |server| jobs::health(&server).await),
        ClientCommand::Logs(command) => with(&command.server, async |server| jobs::logs(&server, command).await),
    }
}

fn change(command: &JobCommand, what: &'static str) -> ExitCode {
    with(&command.server, async |server| jobs::change(&server, command.id, what).await)
}
