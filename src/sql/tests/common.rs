//! Servers with stock's tables, rows for them, and stock's returners.

use std::fs;
use std::path::{Path, PathBuf};

use saltern_config::{SqlSchema, SqlStore, load_master};
use saltern_model::{Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_sql::{SqlReader, SqlWriter, tables};
use saltern_stock::answer_with;
use saltern_stock::databases::{Kind, PASSWORD, Server, home};
use saltern_store::Followed;
use saltern_store::jobs::{JobState, Numbered, StoredJob};
use saltern_wire::msgpack::{Dialect, Limits, Value, decode, encode};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// A server of the kind that a schema needs; its directory goes with it.
pub(crate) struct Site {
    pub(crate) server: Server,
    pub(crate) schema: SqlSchema,
    directory: TempDir,
}

impl Site {
    pub(crate) fn new(schema: SqlSchema) -> Self {
        Self::with(schema, Server::start)
    }

    /// The same with a server that `start` starts.
    pub(crate) fn with(schema: SqlSchema, start: impl FnOnce(Kind, &Path) -> Server) -> Self {
        let kind = match schema {
            SqlSchema::Mysql => Kind::MariaDb,
            _ => Kind::Postgres,
        };
        // Short, because the path of a socket must fit into 107 bytes.
        let directory = tempfile::Builder::new().prefix("sql-").tempdir_in("/tmp");
        let directory = directory.expect("a directory");
        let site = Self {
            server: start(kind, &directory.path().join("server")),
            schema,
            directory,
        };
        site.server.query(tables(schema));
        site
    }

    /// The options of stock's returner.
    pub(crate) fn options(&self) -> Json {
        let prefix = self.schema.option_prefix();
        let password = match self.schema {
            SqlSchema::PgJsonb | SqlSchema::Mysql => "pass",
            _ => "passwd",
        };
        json!({
            format!("{prefix}.host"): self.server.host(),
            format!("{prefix}.port"): self.server.port(),
            format!("{prefix}.user"): "salt",
            format!("{prefix}.{password}"): PASSWORD,
            format!("{prefix}.db"): "salt",
            "id": "the_master",
            "keep_jobs_seconds": 0,
        })
    }

    /// The writer, with the same options as they stand in a file.
    pub(crate) fn writer(&self) -> SqlWriter {
        SqlWriter::new(self.store(&self.options()), "the_master").expect("a writer")
    }

    /// The reader, likewise.
    pub(crate) fn reader(&self) -> SqlReader {
        SqlReader::new(self.store(&self.options())).expect("a reader")
    }

    /// The database that options describe.
    pub(crate) fn store(&self, options: &Json) -> SqlStore {
        let path = self.directory.path().join("master");
        write_config(&path, self.schema, options);
        let loaded = load_master(&path).expect("a configuration");
        let store = loaded.config.returners.sql_store(self.schema.name());
        store.expect("a store").clone()
    }

    /// A path in the directory of the site.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The values that stock's returner of a release returns for calls.
    pub(crate) fn stock(&self, release: &str, calls: &Json) -> Vec<Json> {
        let question = json!({
            "name": self.schema.name(),
            "opts": self.options(),
            "calls": calls,
        });
        // Salt 3008 has the returner for MySQL in an extension.
        let paths = [home().join("clients"), home().join("extension")];
        let count = if release.starts_with("3008") { 2 } else { 1 };
        let path = std::env::join_paths(&paths[..count]).expect("paths");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/returner.py");
        let environment = [("PYTHONPATH", path.as_os_str())];
        let answer = answer_with(release, script, &question.to_string(), &environment);
        serde_json::from_slice(&answer).expect("answers")
    }
}

fn write_config(path: &Path, schema: SqlSchema, options: &Json) {
    let options = options.as_object().expect("a map");
    let lines = options
        .iter()
        .map(|(name, value)| format!("{name}: {value}\n"));
    let text = lines.collect::<String>() + &format!("master_job_cache: {}\n", schema.name());
    fs::write(path, text).expect("a file");
}

pub(crate) fn jid(number: u32) -> String {
    format!("20261121070622{number:06}")
}

/// The load of a job, as it was published.
pub(crate) fn load(number: u32, arg: Json) -> Json {
    json!({
        "jid": jid(number), "fun": "test.echo", "tgt": "web*", "tgt_type": "glob", "arg": arg,
        "user": "root", "cmd": "publish", "ret": "", "kwargs": {"delimiter": ":"},
    })
}

/// The load of a return.
pub(crate) fn ret(number: u32, minion: &str, value: Json) -> Json {
    json!({
        "jid": jid(number), "id": minion, "fun": "test.echo", "fun_args": ["x"], "return": value,
        "retcode": 0, "success": true, "cmd": "_return",
    })
}

/// A job as the job database gives it.
pub(crate) fn job_row(load: &Json) -> Followed {
    let text = |name: &str| load[name].as_str().unwrap_or_default().to_owned();
    let record = JobRecord {
        jid: Jid::parse(&text("jid")).expect("a jid"),
        created: 1_795_244_782_000_000,
        user: text("user"),
        fun: text("fun"),
        tgt: text("tgt"),
        tgt_type: text("tgt_type"),
        load: packed(&value(load)),
        minions: vec![MinionId::parse("web1").expect("an id")],
        nocache: false,
    };
    Followed::Job(Box::new(StoredJob {
        id: 1,
        record,
        state: JobState::Open,
        published: None,
        finished: None,
        notes: None,
        publisher: None,
        reporter: None,
    }))
}

/// A return as the job database gives it.
pub(crate) fn return_row(load: &Json) -> Followed {
    return_of(&value(load))
}

/// The same of a value that JSON has no form for.
pub(crate) fn return_of(load: &Value) -> Followed {
    let text = |name: &str| load.get(name).and_then(Value::as_str).unwrap_or_default();
    // Later jobs return later.
    let number = text("jid")
        .get(14..)
        .and_then(|digits| digits.parse::<i64>().ok());
    let record = ReturnRecord {
        jid: Jid::parse(text("jid")).expect("a jid"),
        minion: MinionId::parse(text("id")).expect("an id"),
        received: 1_795_244_783_500_000 + number.unwrap_or_default(),
        fun: text("fun").to_owned(),
        retcode: 0,
        success: true,
        load: packed(load),
    };
    Followed::Return(Box::new(Numbered { id: 1, record }))
}

fn packed(value: &Value) -> Packed {
    Packed::new(encode(value, Dialect::Bin))
}

pub(crate) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64().expect("a number").into(),
        },
        Json::String(text) => text.into(),
        Json::Array(items) => Value::Array(items.iter().map(value).collect()),
        Json::Object(map) => Value::map(map.iter().map(|(key, item)| (key.as_str(), value(item)))),
    }
}

/// A value of a load as JSON.
pub(crate) fn json_of(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Bool(flag) => json!(flag),
        Value::Int(number) => json!(number),
        Value::Uint(number) => json!(number),
        Value::Float(number) => json!(number),
        Value::Str(text) => json!(text),
        Value::Array(items) => items.iter().map(json_of).collect(),
        Value::Map(entries) => {
            let entry = |(key, item): &(Value, Value)| {
                (key.as_str().expect("a name").to_owned(), json_of(item))
            };
            Json::Object(entries.iter().map(entry).collect())
        }
        other => panic!("{other:?}"),
    }
}

/// The load of a record as JSON.
pub(crate) fn json_of_packed(packed: &Packed) -> Json {
    json_of(&decode(packed.as_ref(), &Limits::WIRE).expect("a load"))
}
