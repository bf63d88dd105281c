//! Rules for the event tags that a minion may use.
//!
//! Subscribers of the bus (the command line, reactors, exporters) trust some tags to come from the
//! master: a return, a new key, a finished runner. Stock keeps minions from a few of them, and only
//! in one of the two forms of `_minion_event` (`MINION_EVENT_BLACKLIST` in
//! `salt/daemons/masterapi.py`), so a minion can forge another one's return with one line of
//! Python. With `saltern_strict_minion_events`, which is on by default, a minion uses no tag of the
//! master's own, and under a minion's name only its own.
//!
//! Tags that stock minions, their beacons, schedules, states and modules send are all allowed, and
//! every tag outside these namespaces is open. Only the tag is checked, never the data under it:
//! data is the sender's claim in any case, and a reactor that acts on it must look at the sender's
//! tag.

use saltern_model::{MinionId, Tag};

use crate::Context;

/// Reason why a minion may not use a tag. The words are labels of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Stock's own blacklist.
    Blacklisted,
    /// Only the master itself uses it.
    Reserved,
    /// It names another minion.
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

/// Namespaces that belong to the master and to the programs beside it: the tag itself and all tags
/// below it, behind a slash. They are those of every `fire_event` and `tagify` in the sources of
/// the three versions that a master, a runner or the command line calls.
const RESERVED: [&str; 19] = [
    "salt/auth",
    // A `stop` event below it halts the batch of an administrator (3008's `batch_manager.py`).
    "salt/batch",
    "salt/cloud",
    "salt/cluster",
    // `salt/event/exit` ends every loop over events (`iter_events` in `salt/utils/event.py`).
    "salt/event",
    "salt/event_listen",
    "salt/fileserver",
    "salt/job",
    "salt/key",
    "salt/netapi",
    "salt/presence",
    "salt/queue",
    "salt/reactors",
    "salt/run",
    "salt/scheduler",
    "salt/stats",
    "salt/wheel",
    "cluster",
    "saltern",
];

/// Single tags of the master.
const RESERVED_TAGS: [&str; 2] = ["key", "rotate_cluster_aes_key"];

/// Management requests to the reactor, which follows them under any tag that contains this
/// (`salt/utils/reactor.py`).
const REACTOR_ORDERS: &str = "salt/reactors/manage";

/// Namespaces in which the next part of the tag is the name of a minion.
const BY_MINION: [&str; 6] = [
    "salt/beacon",
    "salt/minion",
    "salt/syndic",
    "minion/refresh",
    "resource/refresh",
    "syndic",
];

/// Events forwarded by syndics; without `order_masters` there are none.
const OF_SYNDICS: &str = "syndic";

/// Events that minions send about a job they run, by the part behind its jid: the progress of
/// states (`state_events`) and functions, and the start (`start_event`).
const OF_JOBS: [&str; 2] = ["prog", "start"];

/// The digits that a jid begins with.
const JID_DIGITS: usize = 20;

/// Stock's `MINION_EVENT_BLACKLIST`, where `*` spans slashes; and our steps of orchestrations, which are
/// shown as the master's own word.
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
        || ["salt/cloud/", "salt/run/", "salt/cluster/", "saltern/run/"]
            .iter()
            .any(|prefix| tag.starts_with(prefix))
}

/// Why the strict rules keep this minion from this tag, where the site has them on.
pub(crate) fn refusal_here(tag: &Tag, minion: &MinionId, context: &Context) -> Option<Refusal> {
    let is_strict = context.config.saltern_strict_minion_events;
    let order_masters = context.site.order_masters;
    is_strict
        .then(|| strict_refusal(tag, minion, order_masters))
        .flatten()
}

/// Why the strict rules keep this minion from this tag, if they do.
///
/// With `order_masters` syndics forward events of jobs, and nothing on the wire distinguishes a
/// syndic from a minion. Then job tags are open except those that stock itself refuses, and
/// returns, which syndics forward in another way (`_process_event` in `salt/minion.py`).
fn strict_refusal(tag: &Tag, minion: &MinionId, order_masters: bool) -> Option<Refusal> {
    let text = tag.as_str();
    let is_mine = |name: Option<&str>| name == Some(minion.as_str());
    let of_syndic = below(text, OF_SYNDICS);
    if of_syndic.is_some() && !order_masters {
        return Some(Refusal::Reserved);
    }
    let is_return = of_syndic.is_none() && has_return_inside(text);
    if is_return || is_return_of_job(text) || text.contains(REACTOR_ORDERS) {
        return Some(Refusal::Reserved);
    }
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
    if begins_with_jid(text) && !order_masters {
        return Some(Refusal::Reserved);
    }
    is_reserved(text).then_some(Refusal::Reserved)
}

fn is_reserved(tag: &str) -> bool {
    let mut namespaces = RESERVED.iter();
    RESERVED_TAGS.contains(&tag) || namespaces.any(|namespace| below(tag, namespace).is_some())
}

/// Whether the master controls the rate of events of this tag: with `saltern_strict_minion_events`
/// no minion can fire it, and it is neither of an authentication nor of a return.
pub fn is_paced_by_master(tag: &str) -> bool {
    let of_job = below(tag, "salt/job").and_then(|rest| rest.split('/').nth(1));
    let is_of_minion = |what: &str| what == "ret" || OF_JOBS.contains(&what);
    if of_job.is_some_and(is_of_minion) || below(tag, "salt/auth").is_some() {
        return false;
    }
    is_reserved(tag) || begins_with_jid(tag)
}

/// Whether a tag that is no master's would be taken for one all the same: the reactor follows
/// orders, and the command line returns, anywhere in a tag.
pub fn is_tag_of_master(tag: &str) -> bool {
    has_return_inside(tag) || is_return_of_job(tag) || tag.contains(REACTOR_ORDERS)
}

/// Whether the command line would take it for a return, anywhere in the tag: it waits for a regular
/// expression that may match anywhere, `(salt/job|syndic/.*)/<jid>` (`get_iter_returns` in
/// `salt/client/__init__.py`).
fn has_return_inside(tag: &str) -> bool {
    let mut jobs = tag.match_indices("salt/job/").filter(|(at, _)| *at > 0);
    if jobs.any(|(at, found)| begins_with_jid(tag.get(at + found.len()..).unwrap_or_default())) {
        return true;
    }
    let behind = tag.split_once("syndic/").map_or("", |(_, behind)| behind);
    behind.split('/').any(begins_with_jid)
}

/// Whether it is the tag of a return, also as forwarded by a syndic.
fn is_return_of_job(tag: &str) -> bool {
    tag.match_indices("salt/job/").any(|(at, found)| {
        let rest = tag.get(at + found.len()..).unwrap_or_default();
        rest.split('/').nth(1) == Some("ret")
    })
}

fn begins_with_jid(text: &str) -> bool {
    let digits = text.bytes().take(JID_DIGITS);
    digits.filter(u8::is_ascii_digit).count() == JID_DIGITS
}

/// The part behind a namespace and its slash; empty for the namespace itself.
fn below<'t>(tag: &'t str, namespace: &str) -> Option<&'t str> {
    match tag.strip_prefix(namespace)? {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_paced_by_master_is_distinguished() {
        for (tag, expected) in [
            ("salt/auth", false),
            ("salt/key", true),
            ("salt/job/20261122101010123456/new", true),
            ("salt/job/20261122101010123456/ret/web1", false),
            ("20261122101010123456", true),
            ("key", true),
            ("salt/job/20261122101010123456/prog/web1/0", false),
            ("salt/beacon/web1/load/", false),
            ("salt/minion/web1/start", false),
            ("salt/authx", false),
            ("my/own", false),
        ] {
            assert_eq!(is_paced_by_master(tag), expected, "{tag}");
        }
    }

    fn tag(text: &str) -> Tag {
        Tag::parse(text).unwrap()
    }

    fn strict(text: &str, order_masters: bool) -> Option<Refusal> {
        strict_refusal(&tag(text), &MinionId::parse("m1").unwrap(), order_masters)
    }

    #[test]
    fn blacklist_matches_stocks() {
        for barred in [
            "salt/job/20261121070622637714/new",
            "salt/job/x/y/publish",
            "salt/job//return",
            "salt/key",
            "salt/run/1/ret",
            "saltern/run/1/step",
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
    fn strict_rules_allow_tags_of_stock_minions() {
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
            "minion/refresh/m1",
            "salt/deltaproxy/start",
            "salt/beacon/m1/inotify//srv/salt/job/init.sls",
            "myco/build/20261121070622637714",
            "salt/events",
            "salt/batches/done",
        ] {
            assert_eq!(strict(free, false), None, "{free}");
        }
    }

    #[test]
    fn strict_rules_refuse_tags_of_master() {
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
            "rotate_cluster_aes_key",
            "salt/batch/20261121070622637714/stop",
            "salt/batch/x/new",
            "salt/event/exit",
            "salt/event_listen/start",
            "salt/scheduler/20261121070622637714",
            "salt/reactors/manage/add",
            "my/salt/reactors/manage/add",
            "salt/beacon/m1/x/salt/reactors/manage/delete",
            "salt/minion/m1/salt/reactors/manage/list",
            "xsalt/reactors/manage/set_leader",
            "my/salt/job/20261121070622637714/ret/other",
            "salt/beacon/m1/x/salt/job/20261121070622637714/ret/other",
            "salt/syndic/m1/20261121070622637714",
            "mysyndic/x/20261121070622637714/ret",
            "syndic/m1/salt/job/20261121070622637714/ret/other",
            "syndic/m1/x",
            "syndic/other/salt/job/1/new",
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
    fn strict_rules_refuse_tag_of_another_minion() {
        for foreign in [
            "salt/minion/other/start",
            "salt/minion/m1x/start",
            "salt/minion/M1/start",
            "salt/minion//start",
            "salt/minion",
            "salt/beacon/other/load/",
            "minion/refresh/other",
            "resource/refresh/other",
            "salt/syndic/other/start",
            "salt/job/20261121070622637714/prog/other/0",
            "salt/job/20261121070622637714/start",
            "salt/state_result/20261121070622637714/other/x",
        ] {
            assert_eq!(strict(foreign, false), Some(Refusal::Foreign), "{foreign}");
        }
    }

    #[test]
    fn strict_rules_with_syndics_allow_job_tags_except_blacklist() {
        for open in [
            "20261121070622637714",
            "salt/job/20261121070622637714/state/below",
            "syndic/m1/20261121070622637714",
            "syndic/m1/syndic/m2/20261121070622637714",
            "syndic/m1/salt/job/20261121070622637714/new",
            "syndic/m1/salt/auth",
        ] {
            assert_eq!(strict(open, true), None, "{open}");
        }
        for closed in [
            "salt/job/20261121070622637714/new",
            "salt/job/20261121070622637714/ret/below",
            "syndic/m1/salt/job/20261121070622637714/ret/below",
            "salt/auth",
            "syndic/m1/salt/reactors/manage/add",
        ] {
            assert_eq!(strict(closed, true), Some(Refusal::Reserved), "{closed}");
        }
        for foreign in ["salt/minion/other/start", "syndic/other/salt/job/1/new"] {
            assert_eq!(strict(foreign, true), Some(Refusal::Foreign), "{foreign}");
        }
    }
}
