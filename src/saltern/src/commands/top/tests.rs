//! Screens, drawn into a buffer instead of a terminal, and the effect of keys.

use bytes::Bytes;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use saltern_client::ReceivedEvent;
use saltern_model::control::SeenMinion;
use saltern_model::{Jid, MinionId};
use saltern_wire::msgpack::{Dialect, Value, encode};
use tokio::time::{Duration, Instant};

use super::draw::draw;
use super::kill::Signal;
use super::numbers::Sample;
use super::state::{State, Update};
use super::view::{UserAction, View, ViewedData};

/// 2026-01-02 03:04:05 UTC.
const NOW: i64 = 1_767_323_045_000_000;

fn jid(number: u64) -> Jid {
    Jid::parse(&format!("202601020304050000{number:02}")).unwrap()
}

/// A screen of 140 by 24 characters and what is behind it.
struct Bench {
    state: State,
    view: View,
    terminal: Terminal<TestBackend>,
}

impl Bench {
    fn new() -> Self {
        Self {
            state: State::default(),
            view: View::default(),
            terminal: Terminal::new(TestBackend::new(140, 24)).unwrap(),
        }
    }

    /// With a master that gives numbers, twice within two seconds.
    fn with_master() -> Self {
        let mut bench = Self::new();
        let metrics = "process_start_time_seconds 1767319445\n\
            saltern_build_info{salt_compat=\"3008\",version=\"0.1.0\"} 1\n\
            saltern_jobs_open 2\n\
            saltern_minions{standing=\"connected\"} 3\n\
            saltern_actor_up{actor=\"mworker\"} 2\n\
            saltern_actor_mailbox_depth{actor=\"mworker\"} 7\n\
            saltern_actor_handling_seconds_sum{actor=\"mworker\"} 0\n\
            saltern_actor_handling_seconds_count{actor=\"mworker\"} 0\n\
            saltern_actor_restarts_total{actor=\"mworker\"} 1\n\
            saltern_check_passed{check=\"keys\"} 0\n\
            saltern_requests_waiting{class=\"auth\"} 5\n\
            saltern_requests_shed_total{class=\"auth\"} 9\n\
            saltern_returns_total 100\n";
        let later = metrics
            .replace("returns_total 100", "returns_total 150")
            .replace("sum{actor=\"mworker\"} 0", "sum{actor=\"mworker\"} 2")
            .replace("count{actor=\"mworker\"} 0", "count{actor=\"mworker\"} 100");
        let start = Instant::now();
        bench.update(Update::Numbers(Sample::parse(metrics, start)));
        let later = Sample::parse(&later, start + Duration::from_secs(2));
        bench.update(Update::Numbers(later));
        bench
    }

    fn update(&mut self, update: Update) {
        self.state.apply(update, NOW);
    }

    fn event(&mut self, tag: &str, data: &Value) {
        let data = Bytes::from(encode(data, Dialect::Bin));
        let tag = tag.to_owned();
        self.update(Update::Event(ReceivedEvent { tag, data }));
    }

    /// An open job on three minions.
    fn job(&mut self, number: u64, fun: &str) {
        let data = Value::map([
            ("fun", Value::from(fun)),
            ("tgt", Value::from("*")),
            ("user", Value::from("root")),
            ("minions", Value::from(vec![Value::from("m"); 3])),
        ]);
        self.event(&format!("salt/job/{}/new", jid(number)), &data);
    }

    fn press(&mut self, code: KeyCode) -> Option<UserAction> {
        let key = KeyEvent::new(code, KeyModifiers::NONE);
        self.view.key(key, &mut self.state)
    }

    fn type_in(&mut self, text: &str) {
        for c in text.chars() {
            assert_eq!(self.press(KeyCode::Char(c)), None);
        }
    }

    fn screen(&mut self) -> String {
        let (state, view) = (&self.state, &self.view);
        self.terminal
            .draw(|frame| draw(frame, state, view, NOW + 2_000_000))
            .unwrap();
        self.terminal.backend().to_string()
    }

    /// The screen has all of these texts.
    fn shows(&mut self, texts: &[&str]) {
        let screen = self.screen();
        for text in texts {
            assert!(screen.contains(text), "{text:?} is not on:\n{screen}");
        }
    }

    fn shows_none(&mut self, texts: &[&str]) {
        let screen = self.screen();
        for text in texts {
            assert!(!screen.contains(text), "{text:?} is on:\n{screen}");
        }
    }
}

#[test]
fn screen_without_a_master_shows_the_reason() {
    let mut bench = Bench::new();
    bench.update(Update::NoNumbers("connection refused".to_owned()));
    bench.shows(&["no master answers; waiting for one", "connection refused"]);
}

#[test]
fn head_shows_figures_and_problems_of_the_master() {
    let mut bench = Bench::with_master();
    bench.update(Update::BusAway("it is closed".to_owned()));
    bench.shows(&[
        "master 0.1.0 for Salt 3008, up 1 h 00",
        "jobs 2 open",
        "minions 3 connected",
        "25.0 returns",
        "no events: it is closed",
        "not in order: keys",
    ]);
}

#[test]
fn narrow_terminal_shows_every_figure_of_the_head() {
    for (width, height) in [(110, 24), (80, 30)] {
        let mut bench = Bench::with_master();
        bench.terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        bench.job(1, "test.ping");
        bench.shows(&[
            "- not heard",
            "accepted",
            "pending",
            "files - of -",
            "room -",
            "test.ping",
        ]);
    }
}

#[test]
fn jobs_are_listed_newest_first_and_can_be_filtered_by_typing() {
    let mut bench = Bench::with_master();
    bench.job(1, "test.ping");
    bench.job(2, "state.apply");
    let screen = bench.screen();
    let place = |text: &str| screen.find(text).unwrap();
    assert!(place("state.apply") < place("test.ping"), "{screen}");
    bench.shows(&[jid(1).as_str(), "0/3", "2.0 s", "root", "open"]);
    bench.press(KeyCode::Char('/'));
    bench.type_in("STATE op");
    bench.shows(&["filter: STATE op_", "state.apply"]);
    bench.shows_none(&["test.ping"]);
    bench.press(KeyCode::Esc);
    bench.shows(&["test.ping"]);
}

#[test]
fn selection_stays_on_its_row_while_rows_arrive() {
    let mut bench = Bench::with_master();
    bench.job(1, "test.ping");
    bench.press(KeyCode::Down);
    for number in 2..60 {
        bench.job(number, "test.echo");
    }
    bench.shows(&["test.ping"]);
    bench.press(KeyCode::Enter);
    assert_eq!(bench.view.sight().job, Some(jid(1)));
    bench.press(KeyCode::Esc);
    bench.press(KeyCode::Home);
    bench.press(KeyCode::Enter);
    assert_eq!(bench.view.sight().job, Some(jid(59)));
}

#[test]
fn job_panel_shows_missing_minions_and_events() {
    let mut bench = Bench::with_master();
    bench.job(1, "test.sleep");
    bench.press(KeyCode::Enter);
    bench.shows(&["Job 20260102030405000001", "asking …"]);
    let text = "not returned (1):\n  m1\x1b[2J  running: it said so\n".to_owned();
    bench.update(Update::Explained(jid(1), text));
    bench.event(&format!("salt/job/{}/ret/m2", jid(1)), &Value::Nil);
    bench.shows(&[
        "not returned (1):",
        "m1\\u{1b}[2J  running",
        "latest events:",
        "ret/m2",
    ]);
    bench.press(KeyCode::Esc);
    assert_eq!(bench.view.sight(), ViewedData::default());
}

#[test]
fn job_is_ended_only_after_confirmation() {
    let mut bench = Bench::with_master();
    bench.job(1, "test.sleep");
    assert_eq!(bench.press(KeyCode::Char('k')), None);
    bench.shows(&[
        "End job 20260102030405000001?",
        "test.sleep on 3 minions that have not returned",
    ]);
    assert_eq!(bench.press(KeyCode::Esc), None);
    bench.shows_none(&["End job"]);
    bench.press(KeyCode::Char('k'));
    for early in ['K', 't', 'k'] {
        assert_eq!(
            bench.press(KeyCode::Char(early)),
            None,
            "nobody has read it"
        );
    }
    bench.shows(&["End job"]);
    assert_eq!(bench.press(KeyCode::Char('k')), None, "held down");
    let wish = bench.press(KeyCode::Char('K'));
    assert_eq!(wish, Some(UserAction::Kill(jid(1), Signal::Kill)));
    bench.press(KeyCode::Char('k'));
    bench.shows(&["End job"]);
    let wish = bench.press(KeyCode::Char('t'));
    assert_eq!(wish, Some(UserAction::Kill(jid(1), Signal::Terminate)));
    let over = Value::map([("state", "complete")]);
    bench.event(&format!("saltern/job/{}/finished", jid(1)), &over);
    bench.press(KeyCode::Char('k'));
    bench.shows(&["job 20260102030405000001 is over"]);
    bench.shows_none(&["End job"]);
}

#[test]
fn minion_row_shows_presence_and_opens_its_events() {
    let mut bench = Bench::with_master();
    bench.press(KeyCode::Char('2'));
    assert!(bench.view.sight().minions);
    let minion = |id: &str, is_present, standing: &str| SeenMinion {
        id: MinionId::parse(id).unwrap(),
        is_present,
        last_heard: Some(NOW - 60_000_000),
        address: Some([127, 0, 0, 1].into()),
        standing: standing.to_owned(),
    };
    bench.update(Update::Minions(vec![
        minion("here", true, "connected"),
        minion("gone", false, "away: its connection was lost"),
    ]));
    bench.shows(&[
        "1 min 02 ago",
        "127.0.0.1",
        "away: its connection was lost",
        "here",
    ]);
    bench.event("salt/minion/gone/start", &Value::Nil);
    bench.event("salt/minion/here/start", &Value::Nil);
    bench.press(KeyCode::Enter);
    bench.shows(&["filter: gone", "salt/minion/gone/start"]);
    bench.shows_none(&["here/start"]);
}

#[test]
fn workers_and_queues_show_load_and_backlog() {
    let mut bench = Bench::with_master();
    bench.press(KeyCode::Char('3'));
    let screen = bench.screen();
    let line = screen.lines().find(|line| line.contains("mworker"));
    let words: Vec<_> = line.unwrap().split_whitespace().collect();
    let words = words.join(" ");
    assert!(
        words.contains("mworker 2 7 50.0 20.0 ms 50.0 % 1"),
        "{words}"
    );
    bench.press(KeyCode::Right);
    let screen = bench.screen();
    let line = screen.lines().find(|line| line.contains("requests: auth"));
    let words: Vec<_> = line.unwrap().split_whitespace().collect();
    assert!(
        words.join(" ").contains("requests: auth 5 9 0.0"),
        "{screen}"
    );
}

#[test]
fn events_are_shown_with_their_data_and_can_be_held() {
    let mut bench = Bench::with_master();
    bench.press(KeyCode::Char('5'));
    bench.event("my/tag\x1b]0;x\x07", &Value::map([("id", "m\x1b1")]));
    bench.shows(&["my/tag\\u{1b}]0;x\\u{7}", r#"{ "id": "m\u001b1" }"#]);
    bench.press(KeyCode::Char('p'));
    bench.event("later", &Value::Nil);
    bench.shows(&["EVENTS STAND STILL"]);
    bench.shows_none(&["later"]);
    bench.press(KeyCode::Enter);
    bench.shows(&["Esc back"]);
    bench.press(KeyCode::Char('q'));
    assert_eq!(bench.press(KeyCode::Char('q')), Some(UserAction::Quit));
}

#[test]
fn the_help_names_the_keys_and_ctrl_c_always_quits() {
    let mut bench = Bench::new();
    bench.press(KeyCode::Char('?'));
    bench.shows(&["end a job: asks first"]);
    let quit = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(
        bench.view.key(quit, &mut bench.state),
        Some(UserAction::Quit)
    );
}

#[test]
fn tiny_terminal_and_long_lists_are_drawn() {
    let mut bench = Bench::with_master();
    for number in 1..90 {
        bench.job(number, "test.ping");
    }
    for (width, height) in [(1, 1), (20, 3), (80, 6), (80, 7)] {
        bench.terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        for code in [
            KeyCode::End,
            KeyCode::Up,
            KeyCode::PageUp,
            KeyCode::Char('k'),
        ] {
            bench.press(code);
            bench.screen();
        }
        bench.press(KeyCode::Esc);
    }
}
