//! `saltern events`: prints events that the master has kept (`event_return: saltern`), one a line as
//! JSON, the newest last. Reads the job database itself, so the master need not run.

use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_output::json;
use saltern_store::{DatabaseLimits, EventsPage, JobReader, KeptEvent};
use saltern_wire::msgpack::{Limits, Value, decode};
use tracing_subscriber::filter::LevelFilter;

use super::{chain, complain, load_config, say};
use crate::{ConfigArgument, logging};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Only events with a tag like this, such as "salt/job/*".
    #[arg(long, value_name = "WILDCARD")]
    tag: Option<String>,
    /// Only events of so many seconds up to now.
    #[arg(long, value_name = "SECONDS")]
    since: Option<u64>,
    /// How many at most, the newest of all.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: usize,
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    logging::start_plain(LevelFilter::WARN);
    let loaded = match load_config(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let since = arguments.since.map(|seconds| {
        let age = Duration::from_secs(seconds).as_micros();
        let age = i64::try_from(age).unwrap_or(i64::MAX);
        Clock::system().unix_micros().saturating_sub(age)
    });
    let page = EventsPage {
        tag: arguments.tag.as_deref(),
        since,
        limit: arguments.limit,
    };
    let path = &loaded.config.saltern_job_database;
    let events =
        JobReader::open(path, DatabaseLimits::default()).and_then(|reader| reader.events(&page));
    match events {
        Ok(events) => {
            events.iter().for_each(|event| say(&line(event)));
            Exit::Ok
        }
        Err(error) => {
            complain(&chain(&error));
            Exit::Failure
        }
    }
}

fn line(event: &KeptEvent) -> String {
    let data = decode(&event.data, &Limits::WIRE).unwrap_or(Value::Nil);
    let shown = Value::map([
        ("received", Value::from(event.received)),
        ("tag", event.tag.as_str().into()),
        ("data", data),
    ]);
    let text = json(&shown);
    // No text in it has a line feed: what goes are the indentations.
    let parts: Vec<&str> = text.lines().map(str::trim_start).collect();
    format!("{}\n", parts.join(" "))
}
