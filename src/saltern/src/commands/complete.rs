//! `saltern complete KIND PREFIX`: the words that a shell completes another with, one a line. Hidden: the
//! completion of bash calls it.

use clap::ValueEnum;
use saltern_base::exit::Exit;
use saltern_cli::complete::{self, Kind};
use saltern_config::load_for_tools;

use super::say;
use crate::ConfigArgument;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    kind: Offered,
    /// What the words begin with.
    #[arg(default_value = "")]
    prefix: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum Offered {
    Minions,
    Functions,
    Runners,
    Jobs,
}

/// Says nothing of what is wrong: a person is typing a line.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    let Ok(loaded) = load_for_tools(&arguments.config.config) else {
        return Exit::Failure;
    };
    let kind = match arguments.kind {
        Offered::Minions => Kind::Minions,
        Offered::Functions => Kind::Functions,
        Offered::Runners => Kind::Runners,
        Offered::Jobs => Kind::Jobs,
    };
    let words = complete::words(&loaded.config, kind, &arguments.prefix);
    say(&words
        .iter()
        .map(|word| format!("{word}\n"))
        .collect::<String>());
    Exit::Ok
}
