//! `saltern syndics`: the masters above the running master and the syndics below it, whether they are
//! connected, and what waits.

use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_client::control::{self, ControlError};
use saltern_model::control::{OutboxStatus, SyndicBelow, Syndics, UpperStatus};

use super::{chain, complain, load_for_tool, say, say_json};
use crate::ConfigArgument;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How long ago a moment was, in whole seconds.
fn ago(moment: Option<i64>, now: i64) -> String {
    match moment {
        Some(moment) => format!("{} s", (now - moment).max(0) / 1_000_000),
        None => "-".to_owned(),
    }
}

fn word(is_connected: bool) -> &'static str {
    match is_connected {
        true => "connected",
        false => "cut off",
    }
}

fn above(upper: &UpperStatus, now: i64) -> String {
    format!(
        "{:<28} {:<10} {:>10}  {}\n",
        upper.master,
        word(upper.is_connected),
        ago(upper.since, now),
        upper.problem.as_deref().unwrap_or_default()
    )
}

fn outbox(outbox: &OutboxStatus) -> String {
    format!(
        "{:<28} {:>13} {:>9} {:>10} {:>10}\n",
        outbox.outbox,
        outbox.acknowledged,
        outbox.dropped,
        outbox.lag_rows,
        format!("{} s", outbox.lag_seconds)
    )
}

fn below(syndic: &SyndicBelow, now: i64) -> String {
    format!(
        "{:<28} {:<10} {:>10} {:>9}\n",
        syndic.id.as_str(),
        word(syndic.is_connected),
        ago(syndic.last_heard, now),
        syndic.minions
    )
}

fn tables(syndics: &Syndics, now: i64) -> String {
    let mut text = String::new();
    if !syndics.above.is_empty() {
        text += &format!(
            "{:<28} {:<10} {:>10}  {}\n",
            "master above", "", "since", "problem"
        );
        syndics.above.iter().for_each(|it| text += &above(it, now));
        text += &format!(
            "\n{:<28} {:>13} {:>9} {:>10} {:>10}\n",
            "outbox", "acknowledged", "dropped", "rows", "oldest"
        );
        syndics.outboxes.iter().for_each(|it| text += &outbox(it));
    }
    if !syndics.below.is_empty() {
        if !text.is_empty() {
            text.push('\n');
        }
        let names = ["syndic below", "", "last heard", "minions"];
        let [id, state, heard, minions] = names;
        text += &format!("{id:<28} {state:<10} {heard:>10} {minions:>9}\n");
        syndics.below.iter().for_each(|it| text += &below(it, now));
    }
    match text.is_empty() {
        true => "There is no master above this one, and no syndic below it.\n".to_owned(),
        false => text,
    }
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    let loaded = match load_for_tool(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let syndics = match control::syndics(&loaded.config.sock_dir) {
        Ok(syndics) => syndics,
        Err(error) => {
            complain(&chain(&error));
            return match error {
                ControlError::Refused(_) => Exit::Failure,
                _ => Exit::Unavailable,
            };
        }
    };
    match arguments.json {
        true => say_json(&syndics),
        false => say(&tables(&syndics, Clock::system().unix_micros())),
    }
    Exit::Ok
}

#[cfg(test)]
mod tests {
    use saltern_model::MinionId;

    use super::*;

    #[test]
    fn syndics_are_shown_in_both_directions() {
        let nothing = tables(&Syndics::default(), 0);
        assert!(nothing.starts_with("There is no master above"), "{nothing}");
        let syndics = Syndics {
            above: vec![UpperStatus {
                master: "top:4506".to_owned(),
                is_connected: false,
                since: Some(1_000_000),
                problem: Some("it is away".to_owned()),
            }],
            outboxes: vec![OutboxStatus {
                outbox: "top:4506".to_owned(),
                acknowledged: 7,
                dropped: 2,
                lag_rows: 30,
                lag_seconds: 9,
            }],
            below: vec![SyndicBelow {
                id: MinionId::parse("relay").unwrap(),
                is_connected: true,
                last_heard: None,
                minions: 5,
            }],
        };
        let text = tables(&syndics, 61_000_000);
        for part in [
            "top:4506",
            "cut off",
            "60 s  it is away",
            "9 s",
            "relay",
            "connected",
        ] {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
    }
}
