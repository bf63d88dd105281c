//! Model of the screen and its updates. Draws nothing and does no I/O.
//!
//! All of it is bounded: jobs, events and minions by number, their texts in length. All text is
//! sanitized already (`plain`).

use saltern_cli::terminal::{plain, plain_lines};
use saltern_client::ReceivedEvent;
use saltern_model::Jid;
use saltern_model::control::SeenMinion;
use saltern_store::jobs::JobSummary;

use super::events::Events;
use super::jobs::Jobs;
use super::numbers::{Numbers, Sample};

/// Update from a source.
pub(super) enum Update {
    /// The event bus is there.
    BusThere,
    /// It is not, for this reason.
    BusAway(String),
    Event(ReceivedEvent),
    /// The control socket has given the metrics.
    Numbers(Sample),
    /// It has not, for this reason.
    NoNumbers(String),
    Minions(Vec<SeenMinion>),
    /// The latest jobs of the database.
    Jobs(Vec<JobSummary>),
    /// Account of a job, as `saltern explain` gives it.
    Explained(Jid, String),
    /// One notice for the operator.
    Said(String),
}

/// Minions that are kept, those that are away before the others.
pub(super) const MAX_MINIONS: usize = 20_000;

/// Lines of an explanation that are kept, and characters of each.
const MAX_LINES: usize = 5_000;
const MAX_LINE_LENGTH: usize = 500;

/// Bounded model of the screen.
#[derive(Default)]
pub(super) struct State {
    pub(super) jobs: Jobs,
    pub(super) events: Events,
    pub(super) numbers: Numbers,
    pub(super) minions: Vec<SeenMinion>,
    /// How many more there are.
    pub(super) minions_left_out: usize,
    /// Why the bus is not there; nothing while it is.
    pub(super) bus_away: Option<String>,
    /// Why the last question for metrics was not answered; nothing when it was.
    pub(super) numbers_away: Option<String>,
    /// The followed job and its explanation.
    pub(super) explained: Option<(Jid, Vec<String>)>,
    /// Notice to the operator, shown until the next key.
    pub(super) said: String,
}

impl State {
    /// `now` is the wall clock in microseconds since 1970.
    pub(super) fn apply(&mut self, update: Update, now: i64) {
        match update {
            Update::BusThere => self.bus_away = None,
            Update::BusAway(reason) => self.bus_away = Some(plain(&reason, MAX_LINE_LENGTH)),
            Update::Event(event) => {
                self.jobs.hear(&event.tag, || event.value().ok(), now);
                self.events.add(&event, now);
            }
            Update::Numbers(sample) => {
                self.numbers_away = None;
                self.numbers.take(sample);
            }
            Update::NoNumbers(reason) => {
                self.numbers_away = Some(plain(&reason, MAX_LINE_LENGTH));
                self.numbers.forget();
            }
            Update::Minions(minions) => self.see(minions),
            Update::Jobs(jobs) => self.jobs.recall(jobs),
            Update::Explained(jid, text) => {
                let lines = plain_lines(&text, MAX_LINES, MAX_LINE_LENGTH);
                self.explained = Some((jid, lines));
            }
            Update::Said(text) => self.said = plain(&text, MAX_LINE_LENGTH),
        }
    }

    /// Whether a master answers.
    pub(super) fn has_master(&self) -> bool {
        self.numbers.is_known()
    }

    fn see(&mut self, mut minions: Vec<SeenMinion>) {
        // Those that are away are looked for; each group stays in the order of the ids.
        minions.sort_by_key(|minion| minion.is_present);
        self.minions_left_out = minions.len().saturating_sub(MAX_MINIONS);
        minions.truncate(MAX_MINIONS);
        for minion in &mut minions {
            minion.standing = plain(&minion.standing, MAX_LINE_LENGTH);
        }
        self.minions = minions;
    }
}

#[cfg(test)]
mod tests {
    use saltern_model::MinionId;

    use super::*;

    fn minion(id: &str, is_present: bool) -> SeenMinion {
        SeenMinion {
            id: MinionId::parse(id).unwrap(),
            is_present,
            last_heard: None,
            address: None,
            standing: "away:\tgone".to_owned(),
        }
    }

    #[test]
    fn disconnected_minions_come_first_and_the_list_is_bounded() {
        let mut state = State::default();
        let mut minions = vec![minion("a", true), minion("b", false), minion("c", true)];
        state.apply(Update::Minions(minions.clone()), 0);
        let ids: Vec<_> = state.minions.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["b", "a", "c"]);
        assert_eq!(state.minions[0].standing, "away:\\tgone");
        assert_eq!(state.minions_left_out, 0);
        minions.resize(MAX_MINIONS + 1, minion("d", true));
        minions.push(minion("e", false));
        state.apply(Update::Minions(minions), 0);
        assert_eq!(state.minions.len(), MAX_MINIONS);
        assert_eq!(state.minions[1].id.as_str(), "e");
        assert_eq!(state.minions_left_out, 2);
    }

    #[test]
    fn master_is_up_while_metrics_are_answered() {
        let mut state = State::default();
        assert!(!state.has_master());
        let sample = Sample::parse("saltern_jobs_open 1\n", tokio::time::Instant::now());
        state.apply(Update::Numbers(sample), 0);
        assert!(state.has_master());
        state.apply(Update::NoNumbers("refused\x1b".to_owned()), 0);
        assert!(!state.has_master());
        assert_eq!(state.numbers_away.as_deref(), Some("refused\\u{1b}"));
    }
}
