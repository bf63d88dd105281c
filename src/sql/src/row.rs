//! Rows of the tables, made of what the job database has.

use saltern_config::SqlSchema;
use saltern_model::{JobRecord, ReturnRecord};
use saltern_store::Followed;
use saltern_wire::msgpack::Value;

use crate::document::{Marks, TextRules, Texts, unpack};

/// Columns of a job in `postgres_local_cache`, behind `jid` and `started`.
pub(crate) const JOB_COLUMNS: [&str; 8] = [
    "tgt_type", "cmd", "tgt", "kwargs", "ret", "username", "arg", "fun",
];

/// A row, ready to be written.
#[derive(Clone, Debug)]
pub(crate) enum Row {
    Job(JobRow),
    Return(ReturnRow),
}

/// A row of `jids`.
#[derive(Clone, Debug)]
pub(crate) struct JobRow {
    pub(crate) jid: String,
    /// A minion reported it. It never replaces what was published.
    pub(crate) is_reported: bool,
    /// Seconds since 1970.
    pub(crate) started: f64,
    /// JSON, where there is such a column.
    pub(crate) load: String,
    /// [`JOB_COLUMNS`], where there are such.
    pub(crate) columns: Vec<String>,
}

/// A row of `salt_returns`.
#[derive(Clone, Debug)]
pub(crate) struct ReturnRow {
    pub(crate) jid: String,
    pub(crate) id: String,
    pub(crate) fun: String,
    /// As the column has it; `None` where the minion sent none and the column may say so.
    pub(crate) success: Option<String>,
    /// JSON.
    pub(crate) ret: String,
    /// JSON, where there is such a column.
    pub(crate) full_ret: String,
    /// Seconds since 1970.
    pub(crate) received: f64,
}

impl Row {
    /// Bytes of its documents.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Job(job) => job.load.len() + job.columns.iter().map(String::len).sum::<usize>(),
            Self::Return(row) => row.ret.len() + row.full_ret.len(),
        }
    }
}

/// Widths of columns, in characters.
struct Widths {
    jid_of_job: usize,
    jid_of_return: usize,
    fun: usize,
    id: usize,
}

fn widths(schema: SqlSchema) -> Widths {
    let wide = Widths {
        jid_of_job: 255,
        jid_of_return: 255,
        fun: 50,
        id: 255,
    };
    match schema {
        SqlSchema::PgJsonb | SqlSchema::Mysql => wide,
        // Of `jids` alone, so the jid of a return may be longer than that of its job.
        SqlSchema::Postgres => Widths {
            jid_of_job: 20,
            ..wide
        },
        // The indexed names are text; an entry of an index is bounded.
        SqlSchema::PostgresLocalCache => Widths {
            jid_of_job: 20,
            jid_of_return: 20,
            fun: 600,
            id: 600,
        },
    }
}

/// Makes the rows of one schema.
pub(crate) struct Rows {
    schema: SqlSchema,
    rules: TextRules,
}

impl Rows {
    pub(crate) fn new(schema: SqlSchema, document: usize) -> Self {
        let rules = TextRules {
            strict_json: schema == SqlSchema::PgJsonb,
            narrow: schema == SqlSchema::Mysql,
            document,
        };
        Self { schema, rules }
    }

    pub(crate) fn of(&self, followed: &Followed) -> (Row, Marks) {
        let mut texts = Texts::new(self.rules);
        let row = match followed {
            Followed::Job(job) => {
                let load = unpack(job.record.load.as_ref());
                let is_reported = job.reporter.is_some() || load.get("return").is_some();
                let load = texts.clean(load);
                Row::Job(self.job_of(&mut texts, &job.record, &load, is_reported))
            }
            Followed::Return(row) => Row::Return(self.ret(&mut texts, &row.record)),
        };
        (row, texts.marks)
    }

    /// The row without its content, for a database that refuses it.
    pub(crate) fn without_content(&self, followed: &Followed, why: &str) -> Row {
        let mut texts = Texts::new(self.rules);
        let mark = Value::from(format!("[saltern: the database refused it: {why}]"));
        match followed {
            Followed::Job(job) => {
                let record = &job.record;
                let load = Value::map([
                    ("jid", Value::from(record.jid.as_str())),
                    ("fun", Value::from(&record.fun)),
                    ("tgt", mark),
                    ("user", Value::from(&record.user)),
                ]);
                let load = texts.clean(load);
                Row::Job(self.job_of(&mut texts, record, &load, job.reporter.is_some()))
            }
            Followed::Return(row) => {
                let record = &row.record;
                let load = Value::map([
                    ("jid", Value::from(record.jid.as_str())),
                    ("id", Value::from(record.minion.as_str())),
                    ("fun", Value::from(&record.fun)),
                    ("retcode", Value::from(record.retcode)),
                    ("success", Value::from(record.success)),
                    ("return", mark),
                ]);
                let load = texts.clean(load);
                Row::Return(self.ret_of(&mut texts, record, load))
            }
        }
    }

    fn job_of(
        &self,
        texts: &mut Texts,
        record: &JobRecord,
        load: &Value,
        is_reported: bool,
    ) -> JobRow {
        let widths = widths(self.schema);
        let mut row = JobRow {
            jid: texts.key(record.jid.as_str(), widths.jid_of_job),
            is_reported,
            started: seconds(record.created),
            load: String::new(),
            columns: Vec::new(),
        };
        match self.schema {
            SqlSchema::PostgresLocalCache => {
                let columns = JOB_COLUMNS.map(|column| job_column(texts, load, column));
                row.columns = columns.into();
            }
            _ => row.load = whole_or_cut(texts, load, "arg"),
        }
        row
    }

    fn ret(&self, texts: &mut Texts, record: &ReturnRecord) -> ReturnRow {
        let mut load = unpack(record.load.as_ref());
        // `str()` of what was sent, before anything is escaped.
        if self.schema == SqlSchema::PostgresLocalCache {
            let text = saltern_python::str(load.get("return").unwrap_or(&Value::Nil)).into_owned();
            replace(&mut load, "return", Value::Str(text));
        }
        let load = texts.clean(load);
        self.ret_of(texts, record, load)
    }

    fn ret_of(&self, texts: &mut Texts, record: &ReturnRecord, mut load: Value) -> ReturnRow {
        let widths = widths(self.schema);
        let success = self.success(load.get("success"));
        let (ret, full_ret) = match self.schema {
            SqlSchema::PostgresLocalCache => (local_cache_return(texts, &load), String::new()),
            _ => {
                let (ret, cut) = texts.json_or_cut(load.get("return").unwrap_or(&Value::Nil));
                if let Some(cut) = cut {
                    replace(&mut load, "return", cut);
                }
                (ret, whole_or_cut(texts, &load, "return"))
            }
        };
        ReturnRow {
            jid: texts.key(record.jid.as_str(), widths.jid_of_return),
            id: texts.key(record.minion.as_str(), widths.id),
            fun: texts.text(&record.fun, widths.fun),
            success,
            ret,
            full_ret,
            received: seconds(record.received),
        }
    }

    /// The text that Python's clients make of a flag, and of none.
    fn success(&self, value: Option<&Value>) -> Option<String> {
        let is_success = value.is_some_and(Value::is_truthy);
        let text = match self.schema {
            SqlSchema::PostgresLocalCache => {
                value?;
                is_success.to_string()
            }
            SqlSchema::Mysql => u8::from(is_success).to_string(),
            SqlSchema::PgJsonb | SqlSchema::Postgres => is_success.to_string(),
        };
        Some(text)
    }
}

/// A load as JSON; when it is too long, with one of its entries cut, or with nothing else.
fn whole_or_cut(texts: &mut Texts, load: &Value, largest: &str) -> String {
    if let Some(text) = texts.json(load) {
        return text;
    }
    texts.marks.cut += 1;
    let mut smaller = load.clone();
    if let Some(value) = load.get(largest) {
        replace(&mut smaller, largest, texts.cut_value(value));
    }
    texts
        .json(&smaller)
        .unwrap_or_else(|| texts.json_or_cut(load).0)
}

fn job_column(texts: &mut Texts, load: &Value, column: &str) -> String {
    let name = match column {
        "username" => "user",
        other => other,
    };
    let value = load.get(name).unwrap_or(&Value::Nil);
    match column {
        "arg" => texts.json_or_cut(value).0,
        _ => texts.long_text(&saltern_python::str(value)),
    }
}

fn local_cache_return(texts: &mut Texts, load: &Value) -> String {
    let kept = ["return", "retcode", "success"];
    let entries = kept
        .into_iter()
        .filter_map(|name| Some((name, load.get(name)?.clone())));
    let ret = Value::map(entries);
    whole_or_cut(texts, &ret, "return")
}

/// Sets an entry of a load.
pub(crate) fn replace(load: &mut Value, name: &str, value: Value) {
    let Value::Map(entries) = load else {
        return;
    };
    let entry = entries
        .iter_mut()
        .find(|(key, _)| key.as_str() == Some(name));
    match entry {
        Some((_, old)) => *old = value,
        None => entries.push((name.into(), value)),
    }
}

fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}
