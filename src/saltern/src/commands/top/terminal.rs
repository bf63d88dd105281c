//! The terminal while it is ours, and its keys.
//!
//! However the program ends, the terminal is as it was before: it is given back by the value that
//! has it, and by a hook when there is a panic, before anything is said of that.

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc;

/// The terminal in its raw mode and on its other page.
///
/// Its own drop is not wanted: of a terminal that is gone it complains to standard error, which is
/// that terminal, and panics when that fails.
pub(super) struct Screen(ManuallyDrop<DefaultTerminal>);

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Standard output or standard input is none, or does not do as it is told.
    pub(super) fn take() -> io::Result<Self> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this needs a terminal",
            ));
        }
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self(ManuallyDrop::new(terminal))),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    pub(super) fn terminal(&mut self) -> &mut DefaultTerminal {
        &mut self.0
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing any more.
        let _ = self.0.show_cursor();
        give_back();
    }
}

fn give_back() {
    let _ = ratatui::try_restore();
}

/// Keys, and changes of the size; the thread that reads them ends with the program.
pub(super) fn keys() -> io::Result<mpsc::Receiver<io::Result<Event>>> {
    let (keys, pressed) = mpsc::channel(64);
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
