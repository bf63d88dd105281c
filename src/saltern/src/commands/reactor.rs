//! `saltern reactor`: dry run of the reactions to an event, and the dead letters.

use std::borrow::Cow;
use std::sync::Arc;

use saltern_automation::reactor::{Plan, Reaction, ReactionCall, Reactions, Rules};
use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_client::control::{self, ControlError};
use saltern_config::MasterConfig;
use saltern_content::render::data::from_yaml;
use saltern_model::control::ControlRequest;
use saltern_output::{OutputOptions, Outputter, json, render};
use saltern_store::{DeadLetter, dead_letters};
use saltern_wire::msgpack::{Dialect, RawValue, Value};
use serde::Serialize;

use super::{chain, complain, load_for_tool, say};
use crate::{ConfigArgument, logging};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    question: Question,
}

#[derive(clap::Subcommand)]
enum Question {
    /// Render the reactions to an event and print what would be done, without doing it. The
    /// programs that templates run are run. Needs no running master.
    Test {
        /// The tag of the event.
        tag: String,
        /// Its data, a mapping in YAML or JSON; of a minion's event the whole load, with `id` and
        /// `data`.
        #[arg(default_value = "{}")]
        data: String,
        #[command(flatten)]
        config: ConfigArgument,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List failed reactions (dead letters), oldest first.
    Dead {
        #[command(flatten)]
        config: ConfigArgument,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Have the running master replay a failed reaction, with the present rules and files for its
    /// event. If they do not lead to it any more, the dead letter stays.
    Replay {
        /// The dead letter, as `dead` prints it.
        letter: String,
        #[command(flatten)]
        config: ConfigArgument,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    logging::start_plain(tracing_subscriber::filter::LevelFilter::WARN);
    let config = match &arguments.question {
        Question::Dead { config, .. }
        | Question::Test { config, .. }
        | Question::Replay { config, .. } => config,
    };
    let config = match load_for_tool(config) {
        Ok(loaded) => loaded.config,
        Err(exit) => return exit,
    };
    match &arguments.question {
        Question::Test {
            tag, data, json, ..
        } => test(&config, tag, data, *json),
        Question::Dead { json, .. } => dead(&config, *json),
        Question::Replay { letter, .. } => replay(&config, letter),
    }
}

fn test(config: &MasterConfig, tag: &str, data: &str, as_json: bool) -> Exit {
    let limits = saltern_config::yaml::Limits::DEFAULT;
    let data = match saltern_config::yaml::parse(data, "DATA", &limits) {
        Ok(node) => from_yaml(node),
        Err(error) => {
            complain(&error.to_string());
            return Exit::Usage;
        }
    };
    if data.as_map().is_none() {
        complain("the data of an event have to be a mapping");
        return Exit::Usage;
    }
    let reactions = match Reactions::alone(config, &Clock::system()) {
        Ok(reactions) => reactions,
        Err(error) => {
            complain(&chain(&error));
            return Exit::Usage;
        }
    };
    let references = Rules::read(config).references(tag);
    let plan = reactions.of(&references, tag, &Arc::new(data));
    for problem in &plan.problems {
        complain(&problem.to_string());
    }
    if references.is_empty() {
        complain("no rule of the option \"reactor\" is for this tag");
    }
    let shown = shown(&plan);
    say(&match as_json {
        true => json(&shown) + "\n",
        false => {
            render(
                &shown,
                Outputter::for_name(None),
                &OutputOptions::new(false),
            ) + "\n"
        }
    });
    match plan.problems.is_empty() {
        true => Exit::Ok,
        false => Exit::Failure,
    }
}

/// A reaction as it is printed.
#[derive(Serialize)]
struct ReactionReport<'a> {
    id: &'a str,
    sls: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    fun: &'a str,
    #[serde(flatten)]
    call: CallReport<'a>,
}

/// A job's target, or the arguments of a function of the master.
#[derive(Default, Serialize)]
struct CallReport<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tgt: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tgt_type: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arg: Option<Cow<'a, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ret: Option<&'a Value>,
}

fn shown(plan: &Plan) -> Value {
    let reactions: Vec<_> = plan.reactions.iter().map(shown_reaction).collect();
    RawValue::pack(&reactions, Dialect::Bin).decode_exact()
}

fn shown_reaction(reaction: &Reaction) -> ReactionReport<'_> {
    let call = match &reaction.call {
        ReactionCall::Local(load) => CallReport {
            tgt: load.get("tgt"),
            tgt_type: load.get("tgt_type"),
            arg: load.get("arg").map(Cow::Borrowed),
            ret: load.get("ret"),
        },
        ReactionCall::Runner(function)
        | ReactionCall::Wheel(function)
        | ReactionCall::Caller(function) => CallReport {
            arg: Some(Cow::Owned(function.arguments.to_value())),
            ..CallReport::default()
        },
    };
    ReactionReport {
        id: &reaction.id,
        sls: &reaction.sls,
        kind: reaction.call.kind(),
        fun: reaction.call.fun(),
        call,
    }
}

/// Output of `--json` for a dead letter. Its data are bytes, which Python's JSON shows as text.
#[derive(Serialize)]
struct LetterReport<'a> {
    letter: &'a str,
    content: &'a DeadLetter,
}

fn dead(config: &MasterConfig, as_json: bool) -> Exit {
    let letters = match dead_letters(config) {
        Ok(letters) => letters,
        Err(error) => {
            complain(&chain(&error));
            return Exit::Failure;
        }
    };
    if as_json {
        let letters = letters.iter();
        let shown = letters.map(|(letter, content)| LetterReport { letter, content });
        let shown = RawValue::pack(&shown.collect::<Vec<_>>(), Dialect::Bin);
        say(&(json(&shown.decode()) + "\n"));
        return Exit::Ok;
    }
    for (name, letter) in letters {
        let DeadLetter { what, tag, .. } = &letter;
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let (sls, id) = (known(&letter.sls), known(&letter.id));
        let reason = letter.reason.replace('\n', " ");
        say(&format!("{name} {what} {tag} {sls} {id}: {reason}\n"));
    }
    Exit::Ok
}

fn replay(config: &MasterConfig, letter: &str) -> Exit {
    match control::ask(&config.sock_dir, &ControlRequest::Replay(letter.to_owned())) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            complain(&chain(&error));
            match error {
                ControlError::Refused(_) => Exit::Failure,
                _ => Exit::Unavailable,
            }
        }
    }
}
