//! `saltern-lab bench-store`: fills a job database and measures questions to it, for
//! `tests/bench/store.py`. No master runs meanwhile; what is asked are the runner functions
//! themselves. Says what it found as one line of JSON.

use std::path::Path;
use std::sync::Arc;

use saltern_base::chain;
use saltern_base::exit::Exit;
use saltern_config::MasterConfig;
use saltern_minion::swarm::Latencies;
use saltern_model::{Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_runners::{Arguments as CallArguments, Call, Notices, RunnerContext, Runners};
use saltern_store::StoreError;
use saltern_store::jobs::{JobState, Write};
use saltern_store::sqlite::{DatabaseLimits, JobDatabase};
use saltern_wire::msgpack::{Dialect, Value, encode};
use tokio::time::Instant;
use tracing_subscriber::filter::LevelFilter;

use crate::ConfigArgument;
use crate::terminal::{complain, say, start_logging};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// How many jobs are in the database; those that are missing are made.
    #[arg(long, default_value_t = 1_000_000)]
    jobs: u32,
    /// How many minions returned each of them.
    #[arg(long, default_value_t = 10)]
    minions: u32,
    /// How often each question is asked.
    #[arg(long, default_value_t = 2_000)]
    questions: u32,
}

/// Jobs in one commit.
const BATCH: u32 = 500;

/// The first job was made then, in microseconds since 1970; one comes each second.
const FIRST: i64 = 1_700_000_000_000_000;

pub(crate) fn run(arguments: &Arguments) -> Exit {
    start_logging(LevelFilter::WARN);
    let loaded = match arguments.config.load() {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    match measure(arguments, Arc::new(loaded.config)) {
        Ok(line) => {
            say(&line);
            Exit::Ok
        }
        Err(error) => {
            complain(&chain(&error));
            Exit::Failure
        }
    }
}

fn measure(arguments: &Arguments, config: Arc<MasterConfig>) -> Result<String, StoreError> {
    let path = config.saltern_job_database.clone();
    if let Some(directory) = path.parent() {
        saltern_store::files::ensure_dir(directory, 0o700)?;
    }
    let filling = Instant::now();
    let made = fill(&path, arguments)?;
    let filling = filling.elapsed();

    let opening = Instant::now();
    let database = JobDatabase::open(&path, DatabaseLimits::default())?;
    let opening = opening.elapsed();
    let size = database.size()?.file;
    let runners = Runners::new(RunnerContext::new(config, database.reader()?));
    let mut line = format!(
        "{{\"jobs\": {}, \"returns\": {}, \"bytes\": {size}, \"made\": {made}, \
         \"fill_seconds\": {:.1}, \"open_seconds\": {:.4}",
        arguments.jobs,
        u64::from(arguments.jobs) * u64::from(arguments.minions),
        filling.as_secs_f64(),
        opening.as_secs_f64(),
    );
    for question in QUESTIONS {
        let latencies = ask(&runners, question, arguments);
        let millis = |share: f64| latencies.percentile(share).as_secs_f64() * 1e3;
        line.push_str(&format!(
            ", \"{}\": {{\"p50_ms\": {:.3}, \"p99_ms\": {:.3}}}",
            question.name,
            millis(0.5),
            millis(0.99)
        ));
    }
    line.push_str("}\n");
    Ok(line)
}

/// Makes the jobs that are missing; how many.
fn fill(path: &Path, arguments: &Arguments) -> Result<u32, StoreError> {
    let mut database = JobDatabase::open(path, DatabaseLimits::default())?;
    let (jobs, _) = database.reader()?.last_ids()?;
    let first = u32::try_from(jobs).unwrap_or(u32::MAX);
    let mut next = first;
    while next < arguments.jobs {
        let end = next.saturating_add(BATCH).min(arguments.jobs);
        let writes: Vec<Write> = (next..end)
            .flat_map(|number| writes(number, arguments.minions))
            .collect();
        database.commit(&writes)?;
        if database.wal_is_long() {
            database.checkpoint()?;
        }
        next = end;
    }
    database.checkpoint()?;
    Ok(arguments.jobs.saturating_sub(first))
}

fn jid(number: u32) -> Jid {
    let time = saltern_base::clock::civil(FIRST + i64::from(number) * 1_000_000);
    Jid::parse(&time.strftime("%Y%m%d%H%M%S%6f").to_string())
        .expect("invariant: these are twenty digits")
}

fn minion(number: u32) -> MinionId {
    MinionId::parse(&format!("minion-{number:05}")).expect("invariant: this is an id")
}

/// Of a hundred jobs one is a highstate.
fn function(number: u32) -> &'static str {
    match number % 100 {
        7 => "state.highstate",
        other if other < 50 => "test.ping",
        _ => "cmd.run",
    }
}

fn writes(number: u32, minions: u32) -> Vec<Write> {
    let created = FIRST + i64::from(number) * 1_000_000;
    let (jid, fun) = (jid(number), function(number));
    let load = Value::map([
        ("fun", Value::from(fun)),
        ("arg", Value::Array(vec!["uptime".into()])),
        ("tgt", "minion-*".into()),
        ("tgt_type", "glob".into()),
        ("user", "root".into()),
        ("ret", "".into()),
        ("jid", jid.as_str().into()),
    ]);
    let ids: Vec<MinionId> = (0..minions).map(|place| minion(number + place)).collect();
    let mut writes = vec![Write::Job(JobRecord {
        jid: jid.clone(),
        created,
        user: "root".to_owned(),
        fun: fun.to_owned(),
        tgt: "minion-*".to_owned(),
        tgt_type: "glob".to_owned(),
        load: Packed::new(encode(&load, Dialect::Bin)),
        minions: ids.clone(),
        nocache: false,
    })];
    writes.extend(ids.into_iter().map(|minion| {
        let load = Value::map([
            ("cmd", Value::from("_return")),
            ("id", minion.as_str().into()),
            ("jid", jid.as_str().into()),
            ("return", " 07:06:22 up 41 days,  3:12,  0 users".into()),
            ("retcode", 0.into()),
            ("success", true.into()),
            ("fun", fun.into()),
            ("fun_args", Value::Array(vec!["uptime".into()])),
        ]);
        Write::Return(ReturnRecord {
            jid: jid.clone(),
            minion,
            received: created,
            fun: fun.to_owned(),
            retcode: 0,
            success: true,
            load: Packed::new(encode(&load, Dialect::Bin)),
        })
    }));
    writes.push(Write::JobState {
        jid,
        state: JobState::Complete,
        at: created,
        notes: None,
    });
    writes
}

/// A question, and how its arguments follow from the job that it is about.
struct StoreQuery {
    name: &'static str,
    fun: &'static str,
    named: fn(u32) -> Vec<(&'static str, Value)>,
    /// Maximum number of runs, for slow queries.
    most: u32,
}

const QUESTIONS: &[StoreQuery] = &[
    StoreQuery {
        name: "lookup_jid",
        fun: "jobs.lookup_jid",
        named: |job| vec![("jid", jid(job).as_str().into())],
        most: u32::MAX,
    },
    StoreQuery {
        name: "list_job",
        fun: "jobs.list_job",
        named: |job| vec![("jid", jid(job).as_str().into())],
        most: u32::MAX,
    },
    StoreQuery {
        name: "page_of_50",
        fun: "jobs.list_jobs",
        named: |job| vec![("limit", 50.into()), ("before", jid(job).as_str().into())],
        most: u32::MAX,
    },
    StoreQuery {
        name: "page_of_50_highstates",
        fun: "jobs.list_jobs",
        named: |job| {
            vec![
                ("limit", 50.into()),
                ("before", jid(job).as_str().into()),
                ("search_function", "state.highstate".into()),
            ]
        },
        most: u32::MAX,
    },
    StoreQuery {
        name: "last_run",
        fun: "jobs.last_run",
        named: |_| vec![("function", "state.highstate".into())],
        most: u32::MAX,
    },
    StoreQuery {
        name: "active",
        fun: "jobs.active",
        named: |_| Vec::new(),
        most: u32::MAX,
    },
    StoreQuery {
        name: "filter_over_all",
        fun: "jobs.list_jobs",
        named: |_| vec![("search_function", "no.such_*".into())],
        most: 3,
    },
];

/// Asks about jobs all over the database, in an order that no cache foresees.
fn ask(runners: &Runners, question: &StoreQuery, arguments: &Arguments) -> Latencies {
    let latencies = Latencies::default();
    for round in 0..arguments.questions.min(question.most) {
        let job = round.wrapping_mul(2_654_435_761) % arguments.jobs.max(1);
        let named = (question.named)(job).into_iter();
        let call = Call {
            jid: jid(0),
            fun: question.fun.to_owned(),
            arguments: CallArguments {
                positional: Vec::new(),
                named: named
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect(),
            },
            user: "root".to_owned(),
        };
        let began = Instant::now();
        let ran = runners.run(&call, &mut Notices::new(&mut |_| {}));
        latencies.record(began.elapsed());
        if !ran.success {
            complain(&format!(
                "{} was not answered: {:?}",
                question.fun, ran.value
            ));
        }
    }
    latencies
}
