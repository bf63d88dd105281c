//! `saltern events`: prints events as JSON, one a line: those that the master has kept
//! (`event_return: saltern`), the newest last, or with `--follow` those that it fires from now on.
//!
//! Kept events are read from the job database itself, so the master need not run. New ones come
//! from the event socket, whatever the master keeps.

use std::io::{self, Write as _};
use std::time::Duration;

use saltern_base::clock::{Clock, unix_micros};
use saltern_base::exit::Exit;
use saltern_client::{ClientError, EventListener, ReceivedEvent};
use saltern_config::{MasterConfig, OWN_EVENTS};
use saltern_output::json;
use saltern_python::expression::Pattern;
use saltern_sql::open_reader;
use saltern_store::{EventsPage, KeptEvent};
use saltern_wire::msgpack::{Dialect, Limits, RawValue, Value, decode};
use serde::Serialize;
use tracing_subscriber::filter::LevelFilter;

use super::{chain, complain, load_for_tool, say};
use crate::{ConfigArgument, logging};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  saltern events --follow                               every event, as it is fired
  saltern events --follow --tag 'salt/job/*/ret/web1'   what web1 returns
  saltern events --follow --limit 1 --tag 'deploy/*'    wait for one, as a script does
  saltern events --since 3600 --tag 'salt/auth'         kept ones of the last hour
  saltern events --limit 1000 | jq .tag                 each is one line of JSON")]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Print events as they are fired, until interrupted. Needs no event_return.
    #[arg(short, long, conflicts_with = "since")]
    follow: bool,
    /// Only events with a tag like this, such as "salt/job/*".
    #[arg(long, value_name = "WILDCARD", default_value = "*")]
    tag: String,
    /// Only events of the last SECONDS.
    #[arg(long, value_name = "SECONDS")]
    since: Option<u64>,
    /// How many at most: the newest 100 of the kept ones, and without end of new ones.
    #[arg(long, value_name = "NUMBER")]
    limit: Option<usize>,
}

/// Default number of kept events printed.
const NEWEST: usize = 100;

pub(crate) fn run(arguments: &Arguments) -> Exit {
    logging::start_plain(LevelFilter::WARN);
    let loaded = match load_for_tool(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    match arguments.follow {
        true => {
            let followed = actix_rt::System::new().block_on(follow(&loaded.config, arguments));
            followed.unwrap_or_else(|error| {
                complain(&chain(&error));
                Exit::Unavailable
            })
        }
        false => kept(&loaded.config, arguments),
    }
}

fn kept(config: &MasterConfig, arguments: &Arguments) -> Exit {
    let since = arguments.since.map(|seconds| {
        let age = Duration::from_secs(seconds).as_micros();
        let age = i64::try_from(age).unwrap_or(i64::MAX);
        Clock::system().unix_micros().saturating_sub(age)
    });
    let page = EventsPage {
        tag: Some(&arguments.tag),
        since,
        limit: arguments.limit.unwrap_or(NEWEST),
    };
    let events = open_reader(config).and_then(|reader| reader.events(&page));
    let keeps = config
        .returners
        .events
        .iter()
        .any(|name| name == OWN_EVENTS);
    match events {
        Ok(events) if keeps || !events.is_empty() => {
            events.iter().for_each(|event| say(&line_of_kept(event)));
            Exit::Ok
        }
        Err(error) if keeps => {
            complain(&chain(&error));
            Exit::Failure
        }
        _ => {
            complain(
                "this master keeps no events (event_return is not \"saltern\"); to see those to come: \
                 saltern events --follow",
            );
            Exit::Failure
        }
    }
}

/// Ends after `--limit` events, or when the master closes the event socket.
async fn follow(config: &MasterConfig, arguments: &Arguments) -> Result<Exit, ClientError> {
    let pattern = match Pattern::glob(&arguments.tag) {
        Ok(pattern) => pattern,
        Err(error) => {
            complain(&chain(&error));
            return Ok(Exit::Usage);
        }
    };
    let mut events = EventListener::connect(&config.sock_dir).await?;
    let mut left = arguments.limit.unwrap_or(usize::MAX);
    while left > 0 {
        let event = events.next().await?.ok_or(ClientError::EventsEnded)?;
        // A gap is always shown: what was lost may have had such a tag.
        if event.is_gap() || pattern.matches(&event.tag) {
            if write(&line_of(&event)).is_err() {
                // The reader of the pipe is gone.
                break;
            }
            left -= 1;
        }
    }
    Ok(Exit::Ok)
}

fn write(line: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(line.as_bytes())?;
    out.flush()
}

fn line_of_kept(event: &KeptEvent) -> String {
    let data = decode(&event.data, &Limits::WIRE).unwrap_or(Value::Nil);
    line(event.received, &event.tag, data)
}

fn line_of(event: &ReceivedEvent) -> String {
    let now = unix_micros(Clock::system().now());
    line(now, &event.tag, event.value().unwrap_or(Value::Nil))
}

/// An event as it is printed.
#[derive(Serialize)]
struct EventLine<'a> {
    /// In microseconds since 1970.
    received: i64,
    tag: &'a str,
    data: Value,
}

fn line(received: i64, tag: &str, data: Value) -> String {
    let shown = EventLine {
        received,
        tag,
        data,
    };
    let text = json(&RawValue::pack(&shown, Dialect::Bin).decode_exact());
    // JSON strings have no line feed: only indentation is removed.
    let parts: Vec<&str> = text.lines().map(str::trim_start).collect();
    format!("{}\n", parts.join(" "))
}
