//! State of the interface: the view, the filter, the selected row and the open panel. Keys
//! change it; what they ask of others is a [`UserAction`].

use std::cell::Cell;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use saltern_model::Jid;

use super::kill::Signal;
use super::state::State;
use super::table::{Entry, entries};

/// One of the five views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Jobs,
    Minions,
    Workers,
    Queues,
    Events,
}

impl Tab {
    pub(super) const ALL: [Self; 5] = [
        Self::Jobs,
        Self::Minions,
        Self::Workers,
        Self::Queues,
        Self::Events,
    ];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Jobs => "Jobs",
            Self::Minions => "Minions",
            Self::Workers => "Workers",
            Self::Queues => "Queues",
            Self::Events => "Events",
        }
    }

    /// The one `by` further on, in a circle.
    fn turned(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|tab| *tab == self);
        let next = (at.unwrap_or_default() + by) % Self::ALL.len();
        Self::ALL.get(next).copied().unwrap_or(self)
    }
}

/// Panel over the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Panel {
    Job(Jid),
    /// By its number.
    Event(u64),
    Help,
}

/// A job that is to be ended, if the operator says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KillPrompt {
    pub(super) jid: Jid,
    pub(super) fun: String,
    pub(super) missing: usize,
    /// Whether it has been on the screen; set by `draw`.
    pub(super) is_shown: Cell<bool>,
}

/// Action that a key requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UserAction {
    Quit,
    /// The screen is to be drawn from scratch.
    Redraw,
    Kill(Jid, Signal),
}

/// Data in view, which the sources have to request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ViewedData {
    pub(super) minions: bool,
    pub(super) job: Option<Jid>,
}

/// Position in a list.
#[derive(Default)]
struct ListPosition {
    /// The key of the chosen row; without one the first row is, whichever it is.
    chosen: Option<String>,
    /// The first row on the screen; `draw` scrolls it to the selected one.
    first: Cell<usize>,
}

/// State of the interface: open view, filter, selection and panel.
pub(super) struct View {
    pub(super) tab: Tab,
    pub(super) filter: String,
    /// Keys go into the filter.
    pub(super) is_typing: bool,
    pub(super) panel: Option<Panel>,
    /// The first line that the panel shows.
    scroll: Cell<usize>,
    pub(super) question: Option<KillPrompt>,
    places: [ListPosition; Tab::ALL.len()],
    /// Rows of the list or lines of the panel on the screen, as last drawn.
    page: Cell<usize>,
}

impl Default for View {
    fn default() -> Self {
        Self {
            tab: Tab::Jobs,
            filter: String::new(),
            is_typing: false,
            panel: None,
            scroll: Cell::default(),
            question: None,
            places: Default::default(),
            page: Cell::new(1),
        }
    }
}

/// Characters of the filter.
const MAX_FILTER_LENGTH: usize = 100;

impl View {
    pub(super) fn sight(&self) -> ViewedData {
        ViewedData {
            minions: self.tab == Tab::Minions,
            job: match &self.panel {
                Some(Panel::Job(jid)) => Some(jid.clone()),
                _ => None,
            },
        }
    }

    /// The chosen row, and the rows on a screen that has room for `room`.
    pub(super) fn window(&self, entries: &[Entry<'_>], room: usize) -> (usize, usize) {
        let room = room.max(1);
        self.page.set(room);
        let place = self.place();
        let chosen = self.chosen(entries);
        let latest = entries.len().saturating_sub(room);
        let first = place.first.get().min(latest);
        let first = first.clamp((chosen + 1).saturating_sub(room), chosen);
        place.first.set(first);
        (chosen, first)
    }

    /// The first of `lines` lines of the panel on a screen that has room for `room`.
    pub(super) fn panel_window(&self, lines: usize, room: usize) -> usize {
        self.page.set(room.max(1));
        let first = self.scroll.get().min(lines.saturating_sub(room));
        self.scroll.set(first);
        first
    }

    /// Takes a key.
    pub(super) fn key(&mut self, key: KeyEvent, state: &mut State) -> Option<UserAction> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        state.said.clear();
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(UserAction::Quit),
                KeyCode::Char('l') => Some(UserAction::Redraw),
                _ => None,
            };
        }
        if let Some(question) = self.question.take() {
            return self.answer(question, key.code);
        }
        if self.is_typing {
            self.type_filter(key.code, state);
            return None;
        }
        if self.panel.is_some() {
            self.key_of_panel(key.code, state);
            return None;
        }
        self.key_of_list(key.code, state)
    }

    /// The keys that end a job are others than the one that asks, which may have been held down.
    fn answer(&mut self, question: KillPrompt, code: KeyCode) -> Option<UserAction> {
        match code {
            // Keys typed before the prompt was drawn do not confirm it.
            _ if !question.is_shown.get() => self.question = Some(question),
            KeyCode::Char('k') => self.question = Some(question),
            KeyCode::Char('t') => return Some(UserAction::Kill(question.jid, Signal::Terminate)),
            KeyCode::Char('K') => return Some(UserAction::Kill(question.jid, Signal::Kill)),
            _ => {}
        }
        None
    }

    fn type_filter(&mut self, code: KeyCode, state: &State) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) if !c.is_control() && self.filter.len() < MAX_FILTER_LENGTH => {
                self.filter.push(c);
            }
            other => self.travel(other, state),
        }
    }

    fn key_of_panel(&mut self, code: KeyCode, state: &mut State) {
        let (line, page) = (self.scroll.get(), self.page.get());
        let to = match code {
            KeyCode::Up => line.saturating_sub(1),
            KeyCode::Down => line.saturating_add(1),
            KeyCode::PageUp => line.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => line.saturating_add(page),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            KeyCode::Esc | KeyCode::Char('q') | KeyCode::Enter => {
                self.panel = None;
                0
            }
            KeyCode::Char('k') => {
                if let Some(Panel::Job(jid)) = self.panel.clone() {
                    self.ask_to_kill(&jid, state);
                }
                line
            }
            _ => line,
        };
        self.scroll.set(to);
    }

    fn key_of_list(&mut self, code: KeyCode, state: &mut State) -> Option<UserAction> {
        match code {
            KeyCode::Char('q') => return Some(UserAction::Quit),
            KeyCode::Char(digit @ '1'..='5') => {
                let at = digit.to_digit(10).unwrap_or(1) as usize - 1;
                self.tab = Tab::ALL.get(at).copied().unwrap_or(self.tab);
            }
            KeyCode::Tab | KeyCode::Right => self.tab = self.tab.turned(1),
            KeyCode::BackTab | KeyCode::Left => self.tab = self.tab.turned(Tab::ALL.len() - 1),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('?' | 'h') => self.open(Panel::Help),
            KeyCode::Char('p') => state.events.is_paused = !state.events.is_paused,
            KeyCode::Enter => self.open_chosen(state),
            KeyCode::Char('k') => {
                let entries = entries(state, self.tab, &self.filter);
                if let Some(Entry::Job(jid, _)) = entries.get(self.chosen(&entries)) {
                    let jid = (*jid).clone();
                    self.ask_to_kill(&jid, state);
                }
            }
            other => self.travel(other, state),
        }
        None
    }

    /// Moves through the list.
    fn travel(&mut self, code: KeyCode, state: &State) {
        let entries = entries(state, self.tab, &self.filter);
        let (at, page) = (self.chosen(&entries), self.page.get());
        let to = match code {
            KeyCode::Up => at.saturating_sub(1),
            KeyCode::Down => at + 1,
            KeyCode::PageUp => at.saturating_sub(page),
            KeyCode::PageDown => at + page,
            KeyCode::End => usize::MAX,
            KeyCode::Home => {
                self.place_mut().chosen = None;
                return;
            }
            _ => return,
        };
        let to = to.min(entries.len().saturating_sub(1));
        let chosen = entries.get(to).map(|entry| entry.key().into_owned());
        self.place_mut().chosen = chosen;
    }

    fn open_chosen(&mut self, state: &State) {
        let entries = entries(state, self.tab, &self.filter);
        match entries.get(self.chosen(&entries)) {
            Some(Entry::Job(jid, _)) => self.open(Panel::Job((*jid).clone())),
            Some(Entry::Event(event)) => self.open(Panel::Event(event.number)),
            Some(Entry::Minion(minion)) => {
                // The events about it.
                self.filter = minion.id.to_string();
                self.tab = Tab::Events;
            }
            _ => {}
        }
    }

    fn open(&mut self, panel: Panel) {
        self.scroll.set(0);
        self.panel = Some(panel);
    }

    fn ask_to_kill(&mut self, jid: &Jid, state: &mut State) {
        let job = state.jobs.get(jid).filter(|job| job.is_open());
        if job.is_none() {
            state.said = format!("job {jid} is over");
        }
        self.question = job.map(|job| KillPrompt {
            jid: jid.clone(),
            fun: job.fun.clone(),
            missing: job.missing(),
            is_shown: Cell::new(false),
        });
    }

    /// The place of the chosen row among these; the first when it is gone.
    fn chosen(&self, entries: &[Entry<'_>]) -> usize {
        let chosen = self.place().chosen.as_deref();
        let at = chosen.and_then(|key| entries.iter().position(|entry| entry.key() == key));
        at.unwrap_or(0)
    }

    fn place(&self) -> &ListPosition {
        let [jobs, minions, workers, queues, events] = &self.places;
        match self.tab {
            Tab::Jobs => jobs,
            Tab::Minions => minions,
            Tab::Workers => workers,
            Tab::Queues => queues,
            Tab::Events => events,
        }
    }

    fn place_mut(&mut self) -> &mut ListPosition {
        let [jobs, minions, workers, queues, events] = &mut self.places;
        match self.tab {
            Tab::Jobs => jobs,
            Tab::Minions => minions,
            Tab::Workers => workers,
            Tab::Queues => queues,
            Tab::Events => events,
        }
    }
}
