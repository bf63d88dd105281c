//! The reactor panics repeatedly while it has events to react to: no reaction runs twice, and lost
//! ones are reported. Needs a binary built with the feature `fault-injection`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use saltern_tests::process::run;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

use super::MINION;

/// Events are fired until the last panic is over, however long that takes; so many at most.
const MAX_EVENTS: &str = "20000";

/// The reactor panics so many times while events wait for it, and no more than [`MAX_PANICS`] times in all: on a busy
/// machine the command that has it panic may come when all are done.
const PANICS: usize = 4;
const MAX_PANICS: usize = 12;

/// Ends of calls between two panics, and events that wait for it when the command is begun.
const BETWEEN: usize = 20;

/// Events that are reacted to at a time.
const CONCURRENCY: usize = 4;

/// Reactions to each event: a job, a call, and one for which it has to wait, so that events are fired faster than they
/// are reacted to.
const SLS: &str = "
job:
  local.test.echo:
    - tgt: m1
    - args: {text: {{ tag }}}
call:
  runner.test.arg:
    - args: {tag: {{ tag }}}
rest:
  runner.test.sleep:
    - args: {s_time: 0.05}
";

#[test]
fn panicking_reactor_repeats_nothing_and_reports_lost_reactions() -> TestResult {
    let server = Server::Saltern(Release::V3008);
    Site::prepared(server, |_| {}, scenario)
}

fn scenario(site: &mut Site) -> Result<()> {
    let sls = site.path("react.sls");
    std::fs::write(&sls, SLS)?;
    let rules = format!("[{{'flood/*': {}}}]", sls.display());
    let limits = format!("{{'flood/*': {{concurrency: {CONCURRENCY}}}}}");
    // Few at a time, so that there is a middle; a place that a panic kept would end it all.
    site.config()
        .set("reactor", rules)
        .set("saltern_reactor_limits", limits);
    site.write_config()?;
    for text in ["injected fault", "restart", "reactor"] {
        site.announce(text);
    }
    site.start_master()?;
    site.bring_up(&[(MINION, MinionKind::Native)])?;
    let [end, handled] = ["flood-end", "flood-seen"].map(|name| site.path(name));
    let files = [&end, &handled].map(|path| path.display().to_string());
    let mut flood = site.stock_peer("flood_events.py", &[MAX_EVENTS, "10", &files[0], &files[1]]);
    let flood = std::thread::spawn(move || run(&mut flood, 8 * SOON));
    let mut seen = Outcomes::default();
    let (mut panics, mut met) = (0, 0);
    while met < PANICS {
        let enough = seen.called.len() + BETWEEN;
        wait_until("reactions before a panic", SOON, || {
            seen.look(site);
            std::fs::write(&handled, seen.called.len().to_string()).ok()?;
            (seen.called.len() >= enough && seen.waiting() >= BETWEEN).then_some(())
        })?;
        ensure!(panics < MAX_PANICS, "only {met} panics met waiting events");
        panics += 1;
        site.saltern(&["debug", "panic", "reactor"])?
            .expect_code(0)?;
        wait_until("the reactor to be restarted", SOON, || {
            let restarts = site.metric("saltern_actor_restarts_total", "reactor");
            (restarts.ok()? == panics as f64).then_some(())
        })?;
        seen.look(site);
        met += usize::from(seen.waiting() > CONCURRENCY);
    }
    site.step(&format!("{met} of {panics} panics met waiting events"));
    ensure!(!flood.is_finished(), "it panicked after the last event");
    std::fs::write(&end, "")?;
    let flood = flood.join().expect("running a command does not panic")?;
    flood.expect_code(0)?;
    let fired = flood.stdout.trim();
    let fired: usize = fired.parse().with_context(|| format!("{fired:?}"))?;
    // What is done twice is done before what comes after all of it.
    site.salt_run(&["event.send", "flood/end"])?
        .expect_code(0)?;
    let numbers = (0..fired).map(|number| number.to_string());
    let tags = numbers.chain(["end".to_owned()]);
    let tags: Vec<String> = tags.map(|name| format!("flood/{name}")).collect();
    wait_until("every event to have led to something", SOON * 2, || {
        seen.look(site);
        tags.iter().all(|tag| seen.has_received(tag)).then_some(())
    })?;
    for (tag, times) in seen.called.iter().chain(&seen.published) {
        ensure!(*times == 1, "{tag} was reacted to {times} times");
    }
    Ok(())
}

/// Number of events, and of reactions by the tag of their event.
#[derive(Default)]
struct Outcomes {
    fired: usize,
    called: BTreeMap<String, usize>,
    published: BTreeMap<String, usize>,
    lost: BTreeMap<String, usize>,
}

impl Outcomes {
    /// Takes in the events of the bus.
    fn look(&mut self, site: &Site) {
        *self = Self::default();
        for event in &site.events().since(0) {
            let data = &event.data;
            let is = |prefix: &str, suffix: &str| {
                event.tag.starts_with(prefix) && event.tag.ends_with(suffix)
            };
            let (seen, tag) = if is("salt/run/", "/ret") {
                (&mut self.called, &data["fun_args"][0]["tag"])
            } else if is("salt/job/", "/new") {
                (&mut self.published, &data["arg"][0]["text"])
            } else if is("saltern/reactor/lost", "") {
                (&mut self.lost, &data["tag"])
            } else {
                self.fired += usize::from(event.tag.starts_with("flood/"));
                continue;
            };
            if let Some(tag) = tag.as_str().filter(|tag| tag.starts_with("flood/")) {
                *seen.entry(tag.to_owned()).or_default() += 1;
            }
        }
    }

    /// Number of events that have led to nothing yet.
    fn waiting(&self) -> usize {
        self.fired
            .saturating_sub(self.called.len() + self.lost.len())
    }

    /// Whether both reactions to an event are there, or one is reported lost.
    fn has_received(&self, tag: &str) -> bool {
        let is_done = self.called.contains_key(tag) && self.published.contains_key(tag);
        is_done || self.lost.contains_key(tag)
    }
}
