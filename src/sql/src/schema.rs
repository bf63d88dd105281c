//! The tables that stock's documentation asks for, statement by statement.
//!
//! Names, types and indexes are stock's, since its returners and the sites' own queries know them.
//! `IF NOT EXISTS` everywhere: nothing here removes or changes what is there.

use saltern_config::SqlSchema;

const PGJSONB: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS jids (jid varchar(255) NOT NULL PRIMARY KEY, load jsonb NOT NULL)",
    "CREATE INDEX IF NOT EXISTS idx_jids_jsonb ON jids USING gin (load) WITH (fastupdate=on)",
    "CREATE TABLE IF NOT EXISTS salt_returns (fun varchar(50) NOT NULL, jid varchar(255) NOT NULL, \
     return jsonb NOT NULL, id varchar(255) NOT NULL, success varchar(10) NOT NULL, \
     full_ret jsonb NOT NULL, alter_time TIMESTAMP WITH TIME ZONE DEFAULT NOW())",
    "CREATE INDEX IF NOT EXISTS idx_salt_returns_id ON salt_returns (id)",
    "CREATE INDEX IF NOT EXISTS idx_salt_returns_jid ON salt_returns (jid)",
    "CREATE INDEX IF NOT EXISTS idx_salt_returns_fun ON salt_returns (fun)",
    "CREATE INDEX IF NOT EXISTS idx_salt_returns_return ON salt_returns USING gin (return) \
     WITH (fastupdate=on)",
    "CREATE INDEX IF NOT EXISTS idx_salt_returns_full_ret ON salt_returns USING gin (full_ret) \
     WITH (fastupdate=on)",
    "CREATE SEQUENCE IF NOT EXISTS seq_salt_events_id",
    "CREATE TABLE IF NOT EXISTS salt_events (id BIGINT NOT NULL UNIQUE \
     DEFAULT nextval('seq_salt_events_id'), tag varchar(255) NOT NULL, data jsonb NOT NULL, \
     alter_time TIMESTAMP WITH TIME ZONE DEFAULT NOW(), master_id varchar(255) NOT NULL)",
    "CREATE INDEX IF NOT EXISTS idx_salt_events_tag ON salt_events (tag)",
    "CREATE INDEX IF NOT EXISTS idx_salt_events_data ON salt_events USING gin (data) \
     WITH (fastupdate=on)",
];

const POSTGRES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS jids (jid varchar(20) PRIMARY KEY, load text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS salt_returns (fun varchar(50) NOT NULL, jid varchar(255) NOT NULL, \
     return text NOT NULL, full_ret text, id varchar(255) NOT NULL, success varchar(10) NOT NULL, \
     alter_time TIMESTAMP WITH TIME ZONE DEFAULT now())",
    "CREATE INDEX IF NOT EXISTS idx_salt_returns_id ON salt_returns (id)",
    "CREATE INDEX IF NOT EXISTS idx_salt_returns_jid ON salt_returns (jid)",
    "CREATE INDEX IF NOT EXISTS idx_salt_returns_fun ON salt_returns (fun)",
    "CREATE INDEX IF NOT EXISTS idx_salt_returns_updated ON salt_returns (alter_time)",
    "CREATE SEQUENCE IF NOT EXISTS seq_salt_events_id",
    "CREATE TABLE IF NOT EXISTS salt_events (id BIGINT NOT NULL UNIQUE \
     DEFAULT nextval('seq_salt_events_id'), tag varchar(255) NOT NULL, data text NOT NULL, \
     alter_time TIMESTAMP WITH TIME ZONE DEFAULT NOW(), master_id varchar(255) NOT NULL)",
    "CREATE INDEX IF NOT EXISTS idx_salt_events_tag ON salt_events (tag)",
];

// Stock has an index on `salt_events.data` too, which refuses every event of more than 2,700 bytes.
const POSTGRES_LOCAL_CACHE: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS jids (jid varchar(20) PRIMARY KEY, \
     started TIMESTAMP WITH TIME ZONE DEFAULT now(), tgt_type text NOT NULL, cmd text NOT NULL, \
     tgt text NOT NULL, kwargs text NOT NULL, ret text NOT NULL, username text NOT NULL, \
     arg text NOT NULL, fun text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS salt_returns (added TIMESTAMP WITH TIME ZONE DEFAULT now(), \
     fun text NOT NULL, jid varchar(20) NOT NULL, return text NOT NULL, id text NOT NULL, \
     success boolean)",
    "CREATE INDEX IF NOT EXISTS salt_returns_added_idx ON salt_returns (added)",
    "CREATE INDEX IF NOT EXISTS salt_returns_id_idx ON salt_returns (id)",
    "CREATE INDEX IF NOT EXISTS salt_returns_jid_idx ON salt_returns (jid)",
    "CREATE INDEX IF NOT EXISTS salt_returns_fun_idx ON salt_returns (fun)",
    "CREATE TABLE IF NOT EXISTS salt_events (id SERIAL, tag text NOT NULL, data text NOT NULL, \
     alter_time TIMESTAMP WITH TIME ZONE DEFAULT now(), master_id text NOT NULL)",
    "CREATE INDEX IF NOT EXISTS salt_events_tag_idx ON salt_events (tag)",
    "CREATE INDEX IF NOT EXISTS salt_events_id_idx ON salt_events (id)",
    "CREATE INDEX IF NOT EXISTS salt_events_master_id_idx ON salt_events (master_id)",
];

const MYSQL: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS `jids` (`jid` varchar(255) NOT NULL, `load` mediumtext NOT NULL, \
     UNIQUE KEY `jid` (`jid`)) ENGINE=InnoDB DEFAULT CHARSET=utf8",
    "CREATE TABLE IF NOT EXISTS `salt_returns` (`fun` varchar(50) NOT NULL, \
     `jid` varchar(255) NOT NULL, `return` mediumtext NOT NULL, `id` varchar(255) NOT NULL, \
     `success` varchar(10) NOT NULL, `full_ret` mediumtext NOT NULL, \
     `alter_time` TIMESTAMP DEFAULT CURRENT_TIMESTAMP, KEY `id` (`id`), KEY `jid` (`jid`), \
     KEY `fun` (`fun`)) ENGINE=InnoDB DEFAULT CHARSET=utf8",
    "CREATE TABLE IF NOT EXISTS `salt_events` (`id` BIGINT NOT NULL AUTO_INCREMENT, \
     `tag` varchar(255) NOT NULL, `data` mediumtext NOT NULL, \
     `alter_time` TIMESTAMP DEFAULT CURRENT_TIMESTAMP, `master_id` varchar(255) NOT NULL, \
     PRIMARY KEY (`id`), KEY `tag` (`tag`)) ENGINE=InnoDB DEFAULT CHARSET=utf8",
];

/// The statements that make the tables of a schema, in order.
pub fn tables(schema: SqlSchema) -> &'static [&'static str] {
    match schema {
        SqlSchema::PgJsonb => PGJSONB,
        SqlSchema::Postgres => POSTGRES,
        SqlSchema::PostgresLocalCache => POSTGRES_LOCAL_CACHE,
        SqlSchema::Mysql => MYSQL,
    }
}

/// A table with its columns.
type Table = (&'static str, &'static [&'static str]);

const EVENTS: Table = (
    "salt_events",
    &["id", "tag", "data", "alter_time", "master_id"],
);

/// Tables that `pgjsonb`, `postgres` and `mysql` have in common.
const DOCUMENTS: &[Table] = &[
    ("jids", &["jid", "load"]),
    (
        "salt_returns",
        &[
            "fun",
            "jid",
            "return",
            "id",
            "success",
            "full_ret",
            "alter_time",
        ],
    ),
    EVENTS,
];

const LOCAL_CACHE: &[Table] = &[
    (
        "jids",
        &[
            "jid", "started", "tgt_type", "cmd", "tgt", "kwargs", "ret", "username", "arg", "fun",
        ],
    ),
    (
        "salt_returns",
        &["added", "fun", "jid", "return", "id", "success"],
    ),
    EVENTS,
];

/// The columns that are written.
pub(crate) fn columns(schema: SqlSchema) -> &'static [Table] {
    match schema {
        SqlSchema::PostgresLocalCache => LOCAL_CACHE,
        _ => DOCUMENTS,
    }
}
