//! `saltern metrics` and `saltern debug`: requests to a running master over its control socket.

use saltern_base::exit::Exit;
use saltern_client::control;
use saltern_model::control::{ActorName, ActorStatus, ControlRequest};
use serde::de::DeserializeOwned;

use super::{chain, complain, load_for_tool, say};
use crate::ConfigArgument;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    question: Question,
}

#[derive(clap::Subcommand)]
enum Question {
    /// List the actors, with how often each was restarted.
    Actors(ConfigArgument),
    /// List the optional features that the program was built with; needs no master.
    Features,
    /// Make an actor panic (test builds only).
    Panic(OneActor),
    /// Make the thread of an actor hang for ever (test builds only).
    Stall(OneActor),
    /// Symbolize the frames of a panic in the log; needs no master.
    Frames {
        /// Addresses as the log has them, such as +0x1a2b. Those of libraries (0x7f…) are passed
        /// over.
        #[arg(required = true, value_name = "ADDRESS")]
        addresses: Vec<String>,
    },
    /// List the fail points at which the master can be made to die.
    Points(ConfigArgument),
    /// Make the master die as by `kill -9` at a fail point (test builds only).
    Die {
        /// The fail point, as `points` prints it.
        point: String,
        /// At which pass from now on; 0 disarms it.
        #[arg(long, default_value_t = 1)]
        count: u32,
        #[command(flatten)]
        config: ConfigArgument,
    },
}

#[derive(clap::Args)]
struct OneActor {
    /// Its name, as `actors` prints it.
    actor: String,
    /// Its number, for one of a pool.
    #[arg(long, default_value_t = 0)]
    instance: u32,
    #[command(flatten)]
    config: ConfigArgument,
}

impl OneActor {
    fn suffers(&self, fault: fn(ActorName) -> ControlRequest) -> Exit {
        let (name, instance) = (self.actor.clone(), self.instance);
        confirm(&self.config, &fault(ActorName { name, instance }))
    }
}

pub(crate) fn metrics(config: &ConfigArgument) -> Exit {
    answer(config, &ControlRequest::Metrics, |metrics: String| metrics)
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    match &arguments.question {
        Question::Actors(config) => answer(config, &ControlRequest::Actors, actor_lines),
        Question::Features => {
            features().iter().for_each(|name| say(&format!("{name}\n")));
            Exit::Ok
        }
        Question::Panic(actor) => actor.suffers(ControlRequest::Panic),
        Question::Stall(actor) => actor.suffers(ControlRequest::Stall),
        Question::Frames { addresses } => frames(addresses),
        Question::Points(config) => {
            answer(config, &ControlRequest::FailPoints, |names: Vec<String>| {
                names.iter().map(|name| format!("{name}\n")).collect()
            })
        }
        Question::Die {
            point,
            count,
            config,
        } => {
            let (point, count) = (point.clone(), *count);
            confirm(config, &ControlRequest::Die { point, count })
        }
    }
}

/// The features by their names in the manifest. That of fail points is asked for where they stand: cargo
/// may have turned it on for another crate alone.
fn features() -> Vec<&'static str> {
    let all = [
        ("documents", cfg!(feature = "documents")),
        ("fault-injection", saltern_base::fail_point::ARE_BUILT_IN),
        ("jemalloc", cfg!(feature = "jemalloc")),
    ];
    let built_in = all.iter().filter(|(_, is_built_in)| *is_built_in);
    built_in.map(|(name, _)| *name).collect()
}

fn actor_lines(actors: Vec<ActorStatus>) -> String {
    let line =
        |actor: &ActorStatus| format!("{} {} {}\n", actor.name, actor.instance, actor.restarts);
    actors.iter().map(line).collect()
}

fn frames(addresses: &[String]) -> Exit {
    for address in addresses.iter().filter(|one| one.starts_with('+')) {
        match saltern_base::frames::names(address) {
            Ok(names) if names.is_empty() => say(&format!("{address}  ?\n")),
            Ok(names) => names
                .iter()
                .for_each(|name| say(&format!("{address}  {name}\n"))),
            Err(error) => {
                complain(&chain(&error));
                return Exit::Usage;
            }
        }
    }
    Exit::Ok
}

fn confirm(config: &ConfigArgument, request: &ControlRequest) -> Exit {
    answer(config, request, |()| "ok\n".to_owned())
}

/// Prints the master's answer.
fn answer<T: DeserializeOwned>(
    config: &ConfigArgument,
    request: &ControlRequest,
    shown: impl Fn(T) -> String,
) -> Exit {
    let loaded = match load_for_tool(config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    match control::ask(&loaded.config.sock_dir, request) {
        Ok(answer) => {
            say(&shown(answer));
            Exit::Ok
        }
        Err(error) => {
            complain(&chain(&error));
            Exit::Unavailable
        }
    }
}
