//! `haloflow doctor`: whether a run could work here, a line for each check, with what to do where it could not.

mod check;
mod limits;
mod network;
mod torch;

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use haloflow_volume::{Environment, Network, Probed, Purpose, Verdict, probe};
use tokio_util::sync::CancellationToken;

use crate::args::{RunArgs, RunCommand};
use crate::doctor::check::{Check, Told};
use crate::doctor_args::DoctorCommand;
use crate::machine::Machine;
use crate::run::fail;
use crate::typed::Errors;
use crate::{config, exit, logging, settings, signals};

/// For how long a request is repeated, and how long it may go without a byte: a person waits for the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the command to its end.
pub(crate) fn run(command: &DoctorCommand) -> ExitCode {
    let logging = logging::start("text", "warn", &indicatif::MultiProgress::new());
    if let Err(sentence) = logging {
        return fail(&[sentence], exit::USAGE);
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&[format!("the async runtime cannot start: {error}")], exit::SOFTWARE),
    };
    let mut told = Told::new(command.json);
    let stop = CancellationToken::new();
    let finished = runtime.block_on(async {
        signals::watch(stop.clone()).map_err(|error| format!("signals cannot be watched: {error}"))?;
        check(command, &stop, &mut told).await;
        Ok(())
    });
    // A request that nobody waits for any more ends with the process.
    runtime.shutdown_background();
    match finished {
        Err(sentence) => fail(&[sentence], exit::SOFTWARE),
        Ok(()) => told.end(stop.is_cancelled()),
    }
}

/// Every check, in the order in which one thing needs another.
async fn check(command: &DoctorCommand, stop: &CancellationToken, told: &mut Told) {
    let args = keys(command, told);
    let machine = Machine::here();
    let mut errors = Errors::default();
    let devices = settings::devices(&args, &machine, &mut errors);
    torch::look(&args, &devices, told);
    told.refuse("devices", errors);
    network::look(&args, &devices, told);
    limits::memory(&args, &machine, told);
    let folders = places(command, &args, stop, told).await;
    if !stop.is_cancelled() {
        limits::disks(&args, folders, told);
        limits::open_files(&args, told);
    }
}

/// The keys of the run that is asked about. A file that cannot be read is told, and the rest goes on without it.
fn keys(command: &DoctorCommand, told: &mut Told) -> RunArgs {
    let Some(path) = &command.config else { return command.keys() };
    let name = path.display().to_string();
    match config::effective(&RunCommand { config: command.config.clone(), args: command.keys() }) {
        Ok(args) => {
            told.tell(Check::ok("config", name, "every key is known and has a value of its kind"));
            args
        }
        Err(sentence) => {
            told.tell(Check::failed("config", name, sentence, "mend the file", exit::USAGE));
            command.keys()
        }
    }
}

/// Looks at every place that was named, and gives the local folders among those of outputs.
async fn places(command: &DoctorCommand, args: &RunArgs, stop: &CancellationToken, told: &mut Told) -> Vec<PathBuf> {
    let mut errors = Errors::default();
    let network = settings::network(args, &mut errors);
    told.refuse("network", errors);
    let network = Network { deadline: network.deadline.min(PATIENCE), stall: network.stall.min(PATIENCE), ..network };
    let environment = Environment::with_network(std::env::vars(), network);
    let (mut seen, mut folders) = (HashSet::new(), Vec::new());
    for (place, purpose, typed) in asked(command, args) {
        if stop.is_cancelled() {
            break;
        }
        let Probed { findings, folder } = probe(place, purpose, &environment, stop).await;
        folders.extend(folder);
        for mut finding in findings {
            let is_write = finding.check == "write" && finding.verdict != Verdict::Ok;
            if let Some(fix) = finding.fix.as_mut().filter(|_| typed && is_write) {
                fix.push_str("; with --read-only the place is looked at as an input");
            }
            // What is so of a store is told once, however many places are in it.
            if seen.insert((finding.check, finding.subject.clone(), finding.found.clone())) {
                told.tell(Check::of(finding));
            }
        }
    }
    folders
}

/// The places, what each is for, and whether it was typed rather than found in the file. A web server takes nothing.
fn asked<'a>(command: &'a DoctorCommand, args: &'a RunArgs) -> Vec<(&'a str, Purpose, bool)> {
    let inputs = args.input.iter().chain(&args.mask).map(|place| (place.as_str(), Purpose::Read, false));
    let outputs = args.output.iter().flatten().map(|place| (place.as_str(), Purpose::Write, false));
    let typed = command.places.iter().map(|place| {
        let is_web = place.starts_with("http://") || place.starts_with("https://");
        let purpose = if command.read_only || is_web { Purpose::Read } else { Purpose::Write };
        (place.as_str(), purpose, true)
    });
    inputs.chain(outputs).chain(typed).collect()
}
