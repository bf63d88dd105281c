//! `saltern key …`: the keys of minions. What it does is in `saltern-cli`, which `salt-key` shares; here
//! are its arguments.

use std::process::{ExitCode, Termination};

use clap::{Subcommand, ValueEnum};
use saltern_cli::key::{RotationStep, rotate_master};
use saltern_cli::options::KeyOptions;
use tracing_subscriber::filter::LevelFilter;

use super::arguments::CommonArguments;
use super::load_for_tool;
use crate::{ConfigArgument, logging};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  saltern key list --details          age, last seen, version and address of every key
  saltern key list --state pending    keys that nobody has decided on
  saltern key finger web1             to be compared with `salt-call --local key.finger` on web1
  saltern key accept web1             accept it, after a question
  saltern key accept --by-fingerprint 4f:1a:...   the one key that has it
  saltern key delete 'old*' --yes     without a question

Keys are chosen by ids or wildcards; several are separated by commas. Needs no running master,
but for steps of rotate-master that ask minions.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    #[command(flatten)]
    Keys(KeyAction),
    /// Replace the master's own key, step by step; minions accept no other one by themselves.
    RotateMaster(RotateMaster),
}

#[derive(Subcommand)]
enum KeyAction {
    /// List keys by their state.
    List(List),
    /// Accept pending keys.
    Accept(Change),
    /// Reject pending keys.
    Reject(Change),
    /// Delete keys in any state.
    Delete(Change),
    /// Print the fingerprints of keys, the master's own too.
    Finger(Shown),
    /// Print public keys.
    Print(Shown),
    /// Make a pair of keys for a minion.
    Generate(Generate),
}

#[derive(clap::Args)]
#[command(after_help = "\
The steps, in their order:
  saltern key rotate-master begin       then restart the master
  saltern key rotate-master hand-over   again, until nobody is left
  saltern key rotate-master status      who has the new key, who is left and why
  saltern key rotate-master finish      the previous key is not accepted any more

hand-over, status and finish end with exit code 1 while a minion is left.")]
struct RotateMaster {
    #[command(subcommand)]
    step: Step,
}

#[derive(Subcommand)]
enum Step {
    /// Make a new key, signed by the present one; the next start of the master uses it and accepts both.
    Begin(Overlap),
    /// Hand the new key over to connected minions; on stock ones jobs write it.
    HandOver(StepArguments),
    /// List the minions that are left without it, and why.
    Status(StepArguments),
    /// Change the time for which the previous key is accepted; a running master follows at once.
    Extend(Overlap),
    /// Return to the previous key; the next start of the master uses it and accepts both.
    Revert(Overlap),
    /// Accept the previous key no longer; refused while connected minions have it.
    Finish(Finish),
}

#[derive(clap::Args)]
struct StepArguments {
    #[command(flatten)]
    config: ConfigArgument,
}

#[derive(clap::Args)]
struct Overlap {
    /// For how many days from now the key that is replaced is accepted.
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    #[command(flatten)]
    config: ConfigArgument,
}

#[derive(clap::Args)]
struct Finish {
    /// Also while minions are left, or where they cannot be asked: they refuse the master from then on.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    config: ConfigArgument,
}

impl Step {
    fn split(self) -> (RotationStep, ConfigArgument) {
        match self {
            Self::Begin(overlap) => (RotationStep::Begin(overlap.days), overlap.config),
            Self::HandOver(step) => (RotationStep::HandOver, step.config),
            Self::Status(step) => (RotationStep::Status, step.config),
            Self::Extend(overlap) => (RotationStep::Extend(overlap.days), overlap.config),
            Self::Revert(overlap) => (RotationStep::Revert(overlap.days), overlap.config),
            Self::Finish(Finish { force, config }) => (RotationStep::Finish { force }, config),
        }
    }
}

#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    common: CommonArguments,
    /// Show age, last seen, version and address of each key.
    #[arg(long)]
    details: bool,
    /// Only keys in this state.
    #[arg(long, value_name = "STATE", default_value = "all")]
    state: State,
}

#[derive(clap::Args)]
struct Change {
    #[command(flatten)]
    common: CommonArguments,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    /// Take keys in these states, too, separated by commas: accepted, rejected, denied.
    #[arg(long, value_name = "STATES", value_delimiter = ',')]
    include: Vec<Included>,
    #[command(flatten)]
    choice: Choice,
}

#[derive(clap::Args)]
struct Shown {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    choice: Choice,
}

/// Choice of keys.
#[derive(clap::Args)]
struct Choice {
    /// The key is named by its fingerprint.
    #[arg(long)]
    by_fingerprint: bool,
    /// Ids, wildcards, or a fingerprint.
    keys: String,
}

#[derive(clap::Args)]
struct Generate {
    #[command(flatten)]
    common: CommonArguments,
    /// The directory for it.
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: String,
    /// Its size in bits.
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(i64).range(2048..=32768))]
    keysize: Option<i64>,
    /// The name of its files.
    name: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum State {
    Accepted,
    Pending,
    Rejected,
    Denied,
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Included {
    Accepted,
    Rejected,
    Denied,
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    logging::start_plain(LevelFilter::WARN);
    let action = match arguments.action {
        Action::RotateMaster(RotateMaster { step }) => {
            let (step, config) = step.split();
            return match load_for_tool(&config) {
                Ok(loaded) => rotate_master(&loaded.config, step),
                Err(exit) => exit.report(),
            };
        }
        Action::Keys(action) => action,
    };
    let (common, options) = options(action);
    let loaded = match load_for_tool(&common.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit.report(),
    };
    let options = KeyOptions {
        output: common.print.options(),
        eauth: common.login.options(),
        ..options
    };
    saltern_cli::key::manage(&loaded.config, options)
}

/// As the options of `salt-key`.
fn options(action: KeyAction) -> (CommonArguments, KeyOptions) {
    let none = KeyOptions::default;
    match action {
        KeyAction::List(List {
            common,
            details,
            state,
        }) => {
            let kind = match state {
                State::Accepted => "acc",
                State::Pending => "pre",
                State::Rejected => "rej",
                State::Denied => "den",
                State::All => "all",
            };
            let options = KeyOptions {
                list: Some(kind.to_owned()),
                details: Some(details),
                ..none()
            };
            (common, options)
        }
        KeyAction::Accept(change) => change.options(|keys| KeyOptions {
            accept: Some(keys),
            ..none()
        }),
        KeyAction::Reject(change) => change.options(|keys| KeyOptions {
            reject: Some(keys),
            ..none()
        }),
        KeyAction::Delete(change) => change.options(|keys| KeyOptions {
            delete: Some(keys),
            ..none()
        }),
        KeyAction::Finger(Shown { common, choice }) => {
            let options = KeyOptions {
                by_fingerprint: Some(choice.by_fingerprint),
                finger: Some(choice.keys),
                ..none()
            };
            (common, options)
        }
        KeyAction::Print(Shown { common, choice }) => {
            let options = KeyOptions {
                by_fingerprint: Some(choice.by_fingerprint),
                print: Some(choice.keys),
                ..none()
            };
            (common, options)
        }
        KeyAction::Generate(generate) => {
            let options = KeyOptions {
                gen_keys: Some(generate.name),
                gen_keys_dir: Some(generate.directory),
                keysize: generate.keysize,
                ..none()
            };
            (generate.common, options)
        }
    }
}

impl Change {
    fn options(self, of_keys: impl FnOnce(String) -> KeyOptions) -> (CommonArguments, KeyOptions) {
        let includes = |state| self.include.contains(&state).then_some(true);
        let options = KeyOptions {
            yes: self.yes.then_some(true),
            by_fingerprint: Some(self.choice.by_fingerprint),
            include_accepted: includes(Included::Accepted),
            include_rejected: includes(Included::Rejected),
            include_denied: includes(Included::Denied),
            ..of_keys(self.choice.keys)
        };
        (self.common, options)
    }
}
