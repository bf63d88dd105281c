//! Jobs of the screen: those of the database at the start, updated by events of the bus.
//!
//! At most [`MAX_JOBS`] are kept; the oldest ended ones are evicted first. All text in it is plain.

use std::collections::BTreeMap;

use saltern_cli::terminal::plain;
use saltern_model::Jid;
use saltern_store::jobs::{JobState, JobSummary};
use saltern_wire::msgpack::Value;

/// Jobs that are kept.
pub(super) const MAX_JOBS: usize = 1_000;

/// Characters of a function, a target or a user that are kept.
const MAX_TEXT_CHARS: usize = 200;

/// Clients that wait ask with it. The master answers itself and keeps no job of it; one that it
/// keeps all the same has news of its own.
const POLL: &str = "saltutil.find_job";

/// A job in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) fun: String,
    pub(super) target: String,
    pub(super) user: String,
    pub(super) state: JobState,
    pub(super) expected: usize,
    pub(super) returned: usize,
    pub(super) failed: usize,
    /// Given up: unreachable or unknown.
    pub(super) lost: usize,
    /// When it was made, as far as is known; microseconds since 1970.
    pub(super) created: i64,
    /// When it ended; microseconds since 1970.
    pub(super) finished: Option<i64>,
}

impl Job {
    fn made(at: i64) -> Self {
        Self {
            fun: String::new(),
            target: String::new(),
            user: String::new(),
            state: JobState::Open,
            expected: 0,
            returned: 0,
            failed: 0,
            lost: 0,
            created: at,
            finished: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == JobState::Open
    }

    /// Minions that have not returned.
    pub(super) fn missing(&self) -> usize {
        self.expected.saturating_sub(self.returned)
    }

    /// The microseconds that it took, or has taken until `now`.
    pub(super) fn took(&self, now: i64) -> i64 {
        let end = self.finished.unwrap_or(now);
        end.saturating_sub(self.created).max(0)
    }

    /// The word for what became of it.
    pub(super) fn state_word(&self) -> &'static str {
        match self.state {
            JobState::Open => "open",
            JobState::Complete => "complete",
            JobState::Expired => "expired",
            JobState::Killed => "killed",
        }
    }
}

/// Bounded list of jobs, newest first.
#[derive(Default)]
pub(super) struct Jobs(BTreeMap<Jid, Job>);

impl Jobs {
    /// Newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = (&Jid, &Job)> {
        self.0.iter().rev()
    }

    pub(super) fn get(&self, jid: &Jid) -> Option<&Job> {
        self.0.get(jid)
    }

    /// Merges jobs of the database, which may be older than events that the bus has sent meanwhile.
    pub(super) fn recall(&mut self, summaries: Vec<JobSummary>) {
        for known in summaries {
            let job = self.entry(&known.jid, known.created);
            job.fun = plain(&known.fun, MAX_TEXT_CHARS);
            job.target = plain(&known.tgt, MAX_TEXT_CHARS);
            job.user = plain(&known.user, MAX_TEXT_CHARS);
            job.created = known.created;
            job.expected = job.expected.max(known.expected);
            job.returned = job.returned.max(known.returned);
            job.failed = job.failed.max(known.failed);
            if known.state != JobState::Open {
                job.state = known.state;
                job.finished = known.finished;
                job.lost = job.missing();
            }
        }
        self.bound();
    }

    /// An event about a job, if it is one; `now` in microseconds since 1970.
    pub(super) fn hear(&mut self, tag: &str, data: impl FnOnce() -> Option<Value>, now: i64) {
        let mut parts = tag.split('/');
        let (root, word, jid) = (parts.next(), parts.next(), parts.next());
        let what = parts.next().filter(|_| parts.next().is_none());
        let (Some(root), Some("job"), Some(Ok(jid)), Some(what)) =
            (root, word, jid.map(Jid::parse), what)
        else {
            return;
        };
        match (root, what) {
            ("salt", "new") => self.begin(&jid, data(), now),
            ("saltern", "progress" | "state" | "finished") => self.advance(&jid, data(), now),
            ("saltern", "verdict") => self.judge(&jid, data()),
            _ => return,
        }
        self.bound();
    }

    fn begin(&mut self, jid: &Jid, data: Option<Value>, now: i64) {
        let Some(data) = data else { return };
        let fun = listed(data.get("fun"));
        if fun == POLL {
            return;
        }
        let job = self.entry(jid, now);
        job.fun = fun;
        job.target = listed(data.get("tgt"));
        job.user = listed(data.get("user"));
        let minions = data.get("minions").and_then(Value::as_array);
        job.expected = job.expected.max(minions.map_or(0, <[_]>::len));
    }

    /// Minions were given up, or are back; the next count says the same.
    fn judge(&mut self, jid: &Jid, data: Option<Value>) {
        let (Some(job), Some(data)) = (self.0.get_mut(jid), data) else {
            return;
        };
        let minions = data.get("minions").and_then(Value::as_map);
        for (_, change) in minions.unwrap_or_default() {
            let is_lost = |name| {
                let state = change.get(name).and_then(Value::as_str);
                matches!(state, Some("unreachable" | "unknown"))
            };
            match (is_lost("was"), is_lost("is")) {
                (false, true) => job.lost = job.lost.saturating_add(1),
                (true, false) => job.lost = job.lost.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn advance(&mut self, jid: &Jid, data: Option<Value>, now: i64) {
        let Some(data) = data else { return };
        let job = self.entry(jid, now);
        if job.fun.is_empty() {
            job.fun = listed(data.get("fun"));
        }
        if let Some(created) = data.get("created").and_then(Value::as_i64) {
            job.created = created;
        }
        let count = |name: &str| {
            let count = data.get("counts").and_then(|counts| counts.get(name));
            let count = count.and_then(Value::as_u64).unwrap_or_default();
            usize::try_from(count).unwrap_or(usize::MAX)
        };
        job.expected = count("expected");
        job.returned = count("returned");
        job.failed = count("failed");
        job.lost = count("unreachable").saturating_add(count("unknown"));
        let state = match data.get("state").and_then(Value::as_str) {
            Some("complete") => JobState::Complete,
            Some("expired") => JobState::Expired,
            Some("killed") => JobState::Killed,
            _ => JobState::Open,
        };
        job.finished = (state != JobState::Open).then_some(now);
        job.state = state;
    }

    fn entry(&mut self, jid: &Jid, now: i64) -> &mut Job {
        self.0.entry(jid.clone()).or_insert_with(|| Job::made(now))
    }

    fn bound(&mut self) {
        while self.0.len() > MAX_JOBS {
            let over = self.0.iter().find(|(_, job)| !job.is_open());
            let Some(jid) = over.or_else(|| self.0.first_key_value()) else {
                return;
            };
            let jid = jid.0.clone();
            self.0.remove(&jid);
        }
    }
}

/// A text, or the texts of a list with commas between them.
fn listed(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return String::new();
    };
    match (value.as_str(), value.as_array()) {
        (Some(text), _) => plain(text, MAX_TEXT_CHARS),
        (None, Some(items)) => {
            let mut text = String::new();
            for item in items.iter().filter_map(Value::as_str) {
                if !text.is_empty() {
                    text.push(',');
                }
                text.push_str(item);
                if text.len() > MAX_TEXT_CHARS {
                    break;
                }
            }
            plain(&text, MAX_TEXT_CHARS)
        }
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JID: &str = "20260102030405000001";

    fn jid() -> Jid {
        Jid::parse(JID).unwrap()
    }

    fn news(state: &str, returned: i64) -> Option<Value> {
        let counts = [
            ("expected", 3),
            ("returned", returned),
            ("failed", 1),
            ("unreachable", 1),
            ("unknown", 0),
        ];
        let counts = Value::map(counts.map(|(name, count)| (name, Value::from(count))));
        Some(Value::map([
            ("state", Value::from(state)),
            ("counts", counts),
        ]))
    }

    fn new() -> Option<Value> {
        Some(Value::map([
            ("fun", Value::from("test.\x1bping")),
            ("tgt", Value::from(vec![Value::from("a"), Value::from("b")])),
            ("user", Value::from("root")),
            ("minions", Value::from(vec![Value::from("a"); 3])),
        ]))
    }

    #[test]
    fn a_job_is_followed_from_its_beginning_to_its_end() {
        let mut jobs = Jobs::default();
        jobs.hear(&format!("salt/job/{JID}/new"), new, 1_000_000);
        let begun = jobs.get(&jid()).unwrap();
        assert_eq!(
            (&*begun.fun, &*begun.target),
            ("test.\\u{1b}ping", "a,b"),
            "made plain"
        );
        assert_eq!((begun.expected, begun.is_open()), (3, true));
        jobs.hear(
            &format!("saltern/job/{JID}/progress"),
            || news("open", 1),
            2_000_000,
        );
        assert_eq!(jobs.get(&jid()).unwrap().missing(), 2);
        jobs.hear(
            &format!("saltern/job/{JID}/finished"),
            || news("expired", 2),
            5_000_000,
        );
        let over = jobs.get(&jid()).unwrap();
        assert_eq!((over.state_word(), over.lost), ("expired", 1));
        assert_eq!((over.took(9_000_000), over.failed), (4_000_000, 1));
    }

    #[test]
    fn minions_are_lost_and_back_by_verdicts() {
        let mut jobs = Jobs::default();
        jobs.hear(&format!("salt/job/{JID}/new"), new, 0);
        let verdict = |changes: &[(&str, &str)]| {
            let changes = changes.iter().enumerate().map(|(index, (was, is))| {
                let change = [("was", *was), ("is", *is)];
                (format!("m{index}"), Value::map(change))
            });
            Some(Value::map([("minions", Value::map(changes))]))
        };
        let mut lost_after = |changes: &[(&str, &str)]| {
            let tag = format!("saltern/job/{JID}/verdict");
            jobs.hear(&tag, || verdict(changes), 0);
            jobs.get(&jid()).unwrap().lost
        };
        let two = [("delivered", "unknown"), ("running", "unreachable")];
        assert_eq!(lost_after(&two), 2);
        assert_eq!(lost_after(&[("unknown", "unreachable")]), 2);
        assert_eq!(lost_after(&[("unreachable", "returned")]), 1);
    }

    #[test]
    fn find_job_polls_of_clients_are_not_listed() {
        let mut jobs = Jobs::default();
        let poll = Value::map([("fun", POLL)]);
        jobs.hear(&format!("salt/job/{JID}/new"), || Some(poll), 0);
        assert_eq!(jobs.newest_first().count(), 0);
    }

    #[test]
    fn other_events_make_no_job_and_are_not_even_read() {
        let mut jobs = Jobs::default();
        for tag in [
            "salt/auth",
            "salt/job/1/new",
            "salt/job/20260102030405000001/ret/m1",
            "salt/job/20260102030405000001/new/more",
            "salt/run/20260102030405000001/new",
        ] {
            jobs.hear(tag, || unreachable!("{tag}"), 0);
        }
        assert_eq!(jobs.newest_first().count(), 0);
    }

    #[test]
    fn older_database_rows_do_not_override_events() {
        let mut jobs = Jobs::default();
        jobs.hear(
            &format!("saltern/job/{JID}/progress"),
            || news("open", 2),
            7,
        );
        let summary = JobSummary {
            jid: jid(),
            created: 5,
            finished: None,
            user: "root".to_owned(),
            fun: "test.ping".to_owned(),
            tgt: "*".to_owned(),
            tgt_type: "glob".to_owned(),
            state: JobState::Open,
            expected: 3,
            returned: 1,
            failed: 0,
        };
        jobs.recall(vec![summary]);
        let job = jobs.get(&jid()).unwrap();
        assert_eq!((job.returned, job.failed, job.created), (2, 1, 5));
        assert_eq!((&*job.fun, &*job.target), ("test.ping", "*"));
    }

    #[test]
    fn ended_jobs_are_evicted_first() {
        let mut jobs = Jobs::default();
        let jid = |number: usize| format!("{:020}", 20_260_102_030_405_000_000 + number as u128);
        jobs.hear(
            &format!("saltern/job/{}/state", jid(0)),
            || news("open", 0),
            0,
        );
        for number in 1..MAX_JOBS + 5 {
            let tag = format!("saltern/job/{}/finished", jid(number));
            jobs.hear(&tag, || news("complete", 3), 0);
        }
        assert_eq!(jobs.newest_first().count(), MAX_JOBS);
        let oldest: Vec<_> = jobs
            .newest_first()
            .map(|(jid, _)| jid.to_string())
            .collect();
        assert_eq!(oldest.last(), Some(&jid(0)), "it is open");
        assert!(!oldest.contains(&jid(1)));
    }
}
