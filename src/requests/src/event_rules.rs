//! Which tags a minion may use for its events.
//!
//! Whoever listens to the bus (the command line, reactors, exporters) trusts some tags to come from
//! the master: a return, a new key, a finished runner. Stock keeps minions from a few of them, and
//! only in one of the two forms of `_minion_event` (`MINION_EVENT_BLACKLIST` in
//! `salt/daemons/masterapi.py`), so a minion can forge another one's return with one line of
//! Python. With `saltern_strict_minion_events`, which is on unless a site turns it off, a minion
//! uses no tag of the master's own, and under a minion's name only its own.
//!
//! What stock minions, their beacons, schedules, states and modules send is all allowed, and every
//! tag outside these namespaces is anybody's. A tag is looked at, never the data under it: data is
//! the sender's word in any case, and a reactor that acts on it must look at the sender's tag.

use saltern_model::{MinionId, Tag};

/// Why a minion may not use a tag. The words are labels of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Stock's own blacklist.
    Blacklisted,
    /// Only the master itself uses it.
    Reserved,
    /// It bears the name of another minion.
    Foreign,
}

impl Refusal {
    /// The reason in metrics.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Blacklisted => "event_blacklisted",
            Self::Reserved => "event_reserved",
            Self::Foreign => "event_foreign",
        }
    }
}

/// Namespaces that belong to the master and to the programs beside it: the tag itself and whatever
/// follows behind a slash.
const RESERVED: [&str; 14] = [
    "salt/auth",
    "salt/cloud",
    "salt/cluster",
    "salt/fileserver",
    "salt/job",
    "salt/key",
    "salt/netapi",
    "salt/presence",
    "salt/queue",
    "salt/run",
    "salt/stats",
    "salt/wheel",
    "cluster",
    "saltern",
];

/// Tags that are the master's as they stand.
const RESERVED_TAGS: [&str; 1] = ["key"];

/// Namespaces in which the next part of the tag is the name of a minion.
const BY_MINION: [&str; 6] = [
    "salt/beacon",
    "salt/minion",
    "salt/syndic",
    "minion/refresh",
    "resource/refresh",
    "syndic",
];

/// What minions send about a job they run, by the part behind its jid: the progress of states
/// (`state_events`) and functions, and that it begins (`start_event`).
const OF_JOBS: [&str; 2] = ["prog", "start"];

/// The digits that a jid begins with.
const JID_DIGITS: usize = 20;

/// Stock's `MINION_EVENT_BLACKLIST`, where `*` spans slashes.
pub(crate) fn is_blacklisted(tag: &Tag) -> bool {
    let tag = tag.as_str();
    let between = |prefix: &str, suffix: &str| {
        tag.strip_prefix(prefix)
            .is_some_and(|rest| rest.ends_with(suffix))
    };
    between("salt/job/", "/publish")
        || between("salt/job/", "/new")
        || between("salt/job/", "/return")
        || between("salt/wheel/", "/new")
        || between("salt/wheel/", "/return")
        || tag == "salt/key"
        || ["salt/cloud/", "salt/run/", "salt/cluster/"]
            .iter()
            .any(|prefix| tag.starts_with(prefix))
}

/// Why the strict rules keep this minion from this tag, if they do.
///
/// With `order_masters` syndics forward events of jobs, and nothing tells a syndic from a minion:
/// jobs are open then, but for what stock itself refuses.
pub(crate) fn strict_refusal(tag: &Tag, minion: &MinionId, order_masters: bool) -> Option<Refusal> {
    let text = tag.as_str();
    let is_mine = |name: Option<&str>| name == Some(minion.as_str());
    for namespace in BY_MINION {
        if let Some(rest) = below(text, namespace) {
            return (!is_mine(rest.split('/').next())).then_some(Refusal::Foreign);
        }
    }
    if let Some(rest) = below(text, "salt/state_result") {
        return (!is_mine(rest.split('/').nth(1))).then_some(Refusal::Foreign);
    }
    if let Some(rest) = below(text, "salt/job") {
        let mut parts = rest.split('/').skip(1);
        if parts.next().is_some_and(|what| OF_JOBS.contains(&what)) {
            return (!is_mine(parts.next())).then_some(Refusal::Foreign);
        }
        if order_masters && !is_blacklisted(tag) {
            return None;
        }
    }
    let is_jid =
        text.len() >= JID_DIGITS && text.bytes().take(JID_DIGITS).all(|b| b.is_ascii_digit());
    if is_jid && !order_masters {
        return Some(Refusal::Reserved);
    }
    let is_reserved = RESERVED_TAGS.contains(&text)
        || RESERVED
            .iter()
            .any(|namespace| below(text, namespace).is_some());
    is_reserved.then_some(Refusal::Reserved)
}

/// What follows a namespace and its slash; empty for the namespace itself.
fn below<'t>(tag: &'t str, namespace: &str) -> Option<&'t str> {
    match tag.strip_prefix(namespace)? {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> Tag {
        Tag::parse(text).unwrap()
    }

    fn strict(text: &str, order_masters: bool) -> Option<Refusal> {
        strict_refusal(&tag(text), &MinionId::parse("m1").unwrap(), order_masters)
    }

    #[test]
    fn stocks_blacklist() {
        for barred in [
            "salt/job/20261121070622637714/new",
            "salt/job/x/y/publish",
            "salt/job//return",
            "salt/key",
            "salt/run/1/ret",
            "salt/cloud/vm/created",
            "salt/cluster/x",
            "salt/wheel/1/new",
        ] {
            assert!(is_blacklisted(&tag(barred)), "{barred}");
        }
        for free in [
            "salt/job/1/ret/m1",
            "salt/keys",
            "my/own/tag",
            "salt/job/new",
        ] {
            assert!(!is_blacklisted(&tag(free)), "{free}");
        }
    }

    #[test]
    fn what_stock_minions_send_is_allowed() {
        for free in [
            "minion_start",
            "salt/minion/m1/start",
            "minion_ping",
            "_salt_error",
            "fire_master",
            "salt/beacon/m1/inotify//etc/passwd",
            "salt/job/20261121070622637714/prog/m1/0",
            "salt/job/20261121070622637714/start/m1",
            "salt/state_result/20261121070622637714/m1/web/deployed",
            "salt/engines/hook/x",
            "junos/proxy/h/stop",
            "zypper/blocked",
            "myco/build/complete",
            "salt/custom/deploy",
            "salt/keys",
            "my/own/tag",
            "2026/report",
            "syndic_start",
            "salt/syndic/m1/start",
            "syndic/m1/salt/job/20261121070622637714/ret/other",
            "minion/refresh/m1",
        ] {
            assert_eq!(strict(free, false), None, "{free}");
        }
    }

    #[test]
    fn the_masters_own_tags_are_refused() {
        for reserved in [
            "salt/auth",
            "salt/auth/x",
            "salt/key",
            "salt/key/x",
            "salt/presence/change",
            "salt/run/20261121070622637714/ret",
            "salt/wheel/20261121070622637714/ret",
            "salt/cloud/vm/created",
            "salt/cluster/x",
            "cluster/peer/x",
            "salt/stats/master",
            "salt/netapi/hook/deploy",
            "salt/fileserver/gitfs/update",
            "salt/queue/q/process",
            "saltern/gap",
            "key",
            "salt/job/20261121070622637714/ret/m1",
            "salt/job/20261121070622637714/ret/other",
            "salt/job/20261121070622637714/new",
            "salt/job/20261121070622637714",
            "salt/job",
            "20261121070622637714",
            "20261121070622637714/x",
        ] {
            assert_eq!(
                strict(reserved, false),
                Some(Refusal::Reserved),
                "{reserved}"
            );
        }
    }

    #[test]
    fn another_minions_name_is_refused() {
        for foreign in [
            "salt/minion/other/start",
            "salt/minion/m1x/start",
            "salt/minion/M1/start",
            "salt/minion//start",
            "salt/minion",
            "salt/beacon/other/load/",
            "minion/refresh/other",
            "resource/refresh/other",
            "syndic/other/salt/job/1/new",
            "salt/syndic/other/start",
            "salt/job/20261121070622637714/prog/other/0",
            "salt/job/20261121070622637714/start",
            "salt/state_result/20261121070622637714/other/x",
        ] {
            assert_eq!(strict(foreign, false), Some(Refusal::Foreign), "{foreign}");
        }
    }

    #[test]
    fn where_syndics_are_jobs_are_open_but_for_stocks_blacklist() {
        for open in [
            "20261121070622637714",
            "salt/job/20261121070622637714/ret/below",
        ] {
            assert_eq!(strict(open, true), None, "{open}");
        }
        for closed in ["salt/job/20261121070622637714/new", "salt/auth"] {
            assert_eq!(strict(closed, true), Some(Refusal::Reserved), "{closed}");
        }
        assert_eq!(
            strict("salt/minion/other/start", true),
            Some(Refusal::Foreign)
        );
    }
}
