//! The terminal while it is ours, and its keys.
//!
//! However the program ends, the terminal is restored, once: by the drop of its owner, or by a
//! panic hook before the panic message is printed.

use std::io::{self, IsTerminal, stdout};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::{Position, Rect};
use ratatui::prelude::CrosstermBackend;
use ratatui::{DefaultTerminal, Terminal};
use tokio::sync::mpsc;

/// Whether the terminal has to be restored. Global, as the terminal is.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// The terminal in its raw mode and on its other page.
///
/// Its own drop is not wanted: it reports a terminal that is gone to standard error, which is that
/// terminal, and panics when that fails.
pub(super) struct Screen(ManuallyDrop<DefaultTerminal>);

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Standard output or standard input is no terminal, or refuses its modes.
    pub(super) fn take() -> io::Result<Self> {
        if !stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this needs a terminal",
            ));
        }
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            previous(info);
        }));
        enable_raw_mode()?;
        IS_OURS.store(true, Ordering::SeqCst);
        let taken = execute!(stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match taken {
            Ok(terminal) => Ok(Self(ManuallyDrop::new(terminal))),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// The terminal to draw on.
    pub(super) fn terminal(&mut self) -> &mut DefaultTerminal {
        &mut self.0
    }

    /// Forgets what stands on it, so that all of it is drawn the next time.
    ///
    /// Not by `Terminal::clear`, which asks the terminal for the place of its cursor: the answer
    /// would come among the keys.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn wipe(&mut self) -> io::Result<()> {
        let size = self.0.size()?;
        self.0.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Whether it has not been restored yet, because of a panic.
    #[expect(clippy::unused_self, reason = "nobody else has to do with it")]
    pub(super) fn is_ours(&self) -> bool {
        IS_OURS.load(Ordering::SeqCst)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    if IS_OURS.swap(false, Ordering::SeqCst) {
        // A terminal that is gone needs nothing any more.
        let _ = disable_raw_mode();
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    }
}

/// Keys that wait; further ones wait in the terminal.
pub(super) const MAX_KEYS: usize = 64;

/// Keys, and changes of the size; the thread that reads them ends with the program.
pub(super) fn keys() -> io::Result<mpsc::Receiver<io::Result<Event>>> {
    let (keys, pressed) = mpsc::channel(MAX_KEYS);
    std::thread::Builder::new()
        .name("top-keys".to_owned())
        .spawn(move || {
            loop {
                let key = event::read();
                let is_over = key.is_err();
                if keys.blocking_send(key).is_err() || is_over {
                    return;
                }
            }
        })?;
    Ok(pressed)
}

/// The terminal was closed, which is how many people end a program.
pub(super) fn is_gone(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let gone = [Errno::IO, Errno::PIPE, Errno::NXIO, Errno::BADF];
    let code = Errno::from_io_error(error);
    code.is_some_and(|code| gone.contains(&code))
}
