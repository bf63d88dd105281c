//! `saltern top`: jobs, minions, workers, queues and events of a running master, live.
//!
//! Read in this order: [`state`] (the model and its updates), [`sources`] (where updates come
//! from), [`table`] (its rows), [`view`] (keys), [`draw`]. Nothing here speaks to the master
//! otherwise than the other commands do, and nothing is kept when it ends.

mod draw;
mod events;
mod head;
mod jobs;
mod kill;
mod numbers;
mod panel;
mod sources;
mod state;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod units;
mod view;
mod workers;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ratatui::crossterm::event::Event;
use saltern_base::chain;
use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_config::MasterConfig;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use self::sources::Sources;
use self::state::{State, Update};
use self::terminal::Screen;
use self::view::{UserAction, View};
use super::{complain, load_for_tool};
use crate::{ConfigArgument, logging};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
}

/// Minimum time between two redraws.
const FRAME: Duration = Duration::from_millis(100);

/// Time for a panicking thread to print its message before the program ends.
const TELLING: Duration = Duration::from_secs(1);

/// Updates that wait for the screen; then their sources wait.
const WAITING: usize = 1_024;

/// Runs until the operator quits, or the terminal is closed.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    // A panic is printed after the terminal is restored; other lines would spoil the screen.
    logging::start_plain(tracing_subscriber::filter::LevelFilter::ERROR);
    let loaded = match load_for_tool(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let outcome = actix_rt::System::new().block_on(show(Arc::new(loaded.config)));
    match outcome {
        Ok(()) => Exit::Ok,
        Err(error) if terminal::is_gone(&error) => Exit::Ok,
        Err(error) => {
            complain(&chain(&error));
            Exit::Failure
        }
    }
}

async fn show(config: Arc<MasterConfig>) -> io::Result<()> {
    let (updates, mut inbox) = mpsc::channel(WAITING);
    let mut ends = [
        signal(SignalKind::hangup())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::quit())?,
        signal(SignalKind::terminate())?,
    ];
    let mut screen = Screen::take()?;
    let mut keys = terminal::keys()?;
    let mut pressed = Vec::with_capacity(terminal::MAX_KEYS);
    let mut top = Top {
        sources: Sources::start(config.clone(), updates.clone())?,
        config,
        updates,
        state: State::default(),
        view: View::default(),
        clock: Clock::system(),
    };
    let mut frames = tokio::time::interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_new = true;
    let [hangup, interrupt, quit, terminate] = &mut ends;
    loop {
        tokio::select! {
            Some(update) = inbox.recv() => {
                top.state.apply(update, top.clock.unix_micros());
                is_new = true;
            }
            count = keys.recv_many(&mut pressed, terminal::MAX_KEYS) => {
                if count == 0 {
                    return Ok(());
                }
                // All that were pressed before this picture, which they cannot be an answer to.
                for event in pressed.drain(..) {
                    match top.take(&event?) {
                        Some(UserAction::Quit) => return Ok(()),
                        Some(UserAction::Redraw) => screen.wipe()?,
                        Some(UserAction::Kill(jid, signal)) => top.kill(jid, signal),
                        None => {}
                    }
                }
                // Redraw at once: waiting for the next frame would be noticeable.
                top.draw(&mut screen)?;
                is_new = false;
            }
            _ = frames.tick() => {
                if !screen.is_ours() || !top.sources.are_well() {
                    // The panicking thread is still printing its message.
                    tokio::time::sleep(TELLING).await;
                    return Err(io::Error::other("a part of this program has panicked"));
                }
                if is_new {
                    top.draw(&mut screen)?;
                    is_new = false;
                }
            }
            _ = hangup.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = quit.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
        }
    }
}

/// The program without its terminal.
struct Top {
    config: Arc<MasterConfig>,
    sources: Sources,
    updates: mpsc::Sender<Update>,
    state: State,
    view: View,
    clock: Clock,
}

impl Top {
    fn take(&mut self, event: &Event) -> Option<UserAction> {
        let Event::Key(key) = event else {
            return None;
        };
        let wish = self.view.key(*key, &mut self.state);
        self.sources.look(self.view.sight());
        wish
    }

    fn kill(&mut self, jid: saltern_model::Jid, signal: kill::Signal) {
        self.state.said = format!("sending {} {jid} …", signal.function());
        let (config, updates) = (self.config.clone(), self.updates.clone());
        actix_rt::spawn(async move {
            let said = kill::end(config, jid, signal).await;
            // The screen may be closed meanwhile.
            let _ = updates.send(Update::Said(said)).await;
        });
    }

    fn draw(&self, screen: &mut Screen) -> io::Result<()> {
        if !screen.is_ours() {
            return Ok(());
        }
        let now = self.clock.unix_micros();
        let terminal = screen.terminal();
        terminal.draw(|frame| draw::draw(frame, &self.state, &self.view, now))?;
        Ok(())
    }
}
