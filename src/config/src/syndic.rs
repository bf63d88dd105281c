//! Options of the syndic: the masters above this one, and how returns and events go up to them.
//!
//! Identity and timeouts of the syndic are those of the minion's configuration file beside this
//! one, as in stock; they are not here.

use std::path::PathBuf;
use std::time::Duration;

use crate::reader::Reader;
use crate::values::{SyndicFailover, SyndicKind, SyndicMode};
use crate::yaml::Node;

/// Stock's default of `syndic_master`, which names no master: there is no syndic.
const NO_MASTER: &str = "masterofmasters";

/// Stock's default of the request port of a master.
const REQUEST_PORT: u16 = 4506;

/// Most masters above: each has a thread, a session and a cursor.
const MAX_MASTERS: usize = 32;

/// A master above this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpperMaster {
    /// As `syndic_master` writes it: its name everywhere.
    pub name: String,
    /// Host name or address.
    pub host: String,
    /// Its request port.
    pub port: u16,
}

impl UpperMaster {
    /// `host`, `host:port`, an IPv6 address, or one in brackets with a port.
    fn parse(written: &str, port: u16) -> Option<Self> {
        let written = written.trim();
        let (host, port) = match written
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
        {
            Some((host, "")) => (host, port),
            Some((host, rest)) => (host, rest.strip_prefix(':')?.parse().ok()?),
            None => match written.split_once(':') {
                // More than one colon: an IPv6 address.
                Some((_, rest)) if rest.contains(':') => (written, port),
                Some((host, port)) => (host, port.parse().ok()?),
                None => (written, port),
            },
        };
        let is_usable = !host.is_empty() && port != 0;
        is_usable.then(|| Self {
            name: written.to_owned(),
            host: host.to_owned(),
            port,
        })
    }
}

/// Options of the syndic.
#[derive(Clone, Debug)]
pub struct SyndicOptions {
    /// `syndic_master`, each once; none of them: there is no syndic.
    pub masters: Vec<UpperMaster>,
    /// `saltern_syndic`: the program that is the syndic.
    pub kind: SyndicKind,
    /// `syndic_mode`.
    pub mode: SyndicMode,
    /// `syndic_failover`.
    pub failover: SyndicFailover,
    /// `syndic_event_forward_timeout`: the longest that a return waits for others to go with it.
    pub gather: Duration,
    /// `syndic_jid_forward_cache_hwm`: jobs whose load is remembered to have gone up.
    pub remembered_jobs: usize,
    /// `syndic_pidfile`: by which a running salt-syndic is found.
    pub pidfile: PathBuf,
    /// `saltern_syndic_keep_seconds`: returns older than this do not go up any more.
    pub keep: Option<Duration>,
    /// `saltern_syndic_keep_returns`: most rows that may wait for one master above.
    pub keep_returns: u64,
    /// `saltern_syndic_inventory`: inventories are sent up, and taken from below.
    pub inventory: bool,
    /// `saltern_syndic_frames`: returns are sent up, and taken from below, in numbered frames.
    pub frames: bool,
}

impl SyndicOptions {
    pub(crate) fn read(reader: &mut Reader<'_>, pidfile: PathBuf) -> Self {
        let port = match reader.applies("syndic_master_port") {
            Some(_) => reader.port("syndic_master_port"),
            None => REQUEST_PORT,
        };
        let keep = reader.seconds("saltern_syndic_keep_seconds");
        Self {
            masters: masters(reader, port),
            kind: reader
                .choice("saltern_syndic")
                .unwrap_or(SyndicKind::Native),
            mode: reader
                .optional_choice("syndic_mode")
                .unwrap_or(SyndicMode::Sync),
            failover: reader
                .choice("syndic_failover")
                .unwrap_or(SyndicFailover::Random),
            gather: reader.seconds("syndic_event_forward_timeout"),
            remembered_jobs: reader.usize("syndic_jid_forward_cache_hwm", 0, 1 << 20),
            pidfile,
            keep: Some(keep).filter(|keep| !keep.is_zero()),
            keep_returns: u64::try_from(reader.int("saltern_syndic_keep_returns", 1, i64::MAX))
                .unwrap_or(u64::MAX),
            inventory: reader.bool("saltern_syndic_inventory"),
            frames: reader.bool("saltern_syndic_frames"),
        }
    }

    /// Whether this process is the syndic.
    pub fn is_native(&self) -> bool {
        self.kind == SyndicKind::Native && !self.masters.is_empty()
    }
}

fn masters(reader: &mut Reader<'_>, port: u16) -> Vec<UpperMaster> {
    let name = "syndic_master";
    let texts = |node: &Node| match node.as_seq() {
        Some(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>(),
        None if node.is_null() => Some(Vec::new()),
        None => node.as_str().map(|text| vec![text.to_owned()]),
    };
    let wanted = "the address of a master (\"host\" or \"host:port\") or a list of them";
    let accept = |node: &Node| {
        let texts = texts(node)?;
        let named = texts
            .iter()
            .filter(|text| !text.is_empty() && *text != NO_MASTER);
        let named = named.map(|text| UpperMaster::parse(text, port));
        named.collect::<Option<Vec<_>>>()
    };
    let found = reader.read(name, wanted, accept).unwrap_or_default();
    let mut masters: Vec<UpperMaster> = Vec::new();
    for master in found {
        if !masters.iter().any(|known| known.name == master.name) {
            masters.push(master);
        }
    }
    if masters.len() > MAX_MASTERS {
        reader.error(name, format!("names more than {MAX_MASTERS} masters"));
        masters.truncate(MAX_MASTERS);
    }
    masters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_master_is_read_with_and_without_port() {
        let cases = [
            ("top", Some(("top", 4506))),
            ("top.example:4507", Some(("top.example", 4507))),
            ("192.0.2.1:1", Some(("192.0.2.1", 1))),
            ("2001:db8::1", Some(("2001:db8::1", 4506))),
            ("[2001:db8::1]", Some(("2001:db8::1", 4506))),
            ("[2001:db8::1]:99", Some(("2001:db8::1", 99))),
            ("top:0", None),
            ("top:x", None),
            (":4506", None),
            ("[2001:db8::1]99", None),
        ];
        for (written, expected) in cases {
            let read = UpperMaster::parse(written, 4506);
            let read = read.as_ref().map(|it| (it.host.as_str(), it.port));
            assert_eq!(read, expected, "{written}");
        }
    }
}
