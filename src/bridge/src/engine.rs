//! Engines of the site: each runs in a helper process of its own, for as long as the master.
//!
//! Running one blocks its thread until the engine ends; another thread ends it by its [`EngineHandle`].
//! Whether it is started again is not decided here.

use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use saltern_wire::msgpack::{Dialect, Encoder, Value};
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::exchange::{self, HelperFailure, LENGTH};
use crate::helper::{Helper, Problem};
use crate::{Bridge, BridgeError, FrameTooLong};

/// How long Python and Salt may take to load. Many engines start at once with the master, and
/// share its cores.
const COMING_UP: Duration = Duration::from_secs(120);

/// For ever, in a number that deadlines can be made of.
const LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// An engine that Python runs. No `Debug`: options of engines hold passwords.
pub struct EngineCall {
    /// The entry of `engines`.
    pub name: String,
    /// The module whose `start` is called.
    pub module: String,
    /// Its options, a map.
    pub options: Value,
}

/// Holds an engine that runs on another thread, to end it. For one run.
#[derive(Default)]
pub struct EngineHandle(Mutex<Held>);

#[derive(Clone, Copy, Default)]
enum Held {
    /// It has not begun.
    #[default]
    Nothing,
    /// Its process, which leads a group.
    Running(Pid),
    /// It is not to begin any more, or is over.
    Over,
}

impl EngineHandle {
    /// Asks the process to end, which may clear up first. One that has not begun never will.
    pub fn ask_to_end(&self) {
        self.end(|pid| kill_process(pid, Signal::TERM));
    }

    /// Ends the process and everything it has started.
    pub fn kill(&self) {
        self.end(|pid| kill_process_group(pid, Signal::KILL));
    }

    /// Under the lock, so that the number is still that of the process.
    fn end(&self, signal: impl FnOnce(Pid) -> rustix::io::Result<()>) {
        let mut held = self.0.lock();
        if let Held::Running(pid) = *held {
            // It may have ended by itself, which is what is wanted.
            let _ = signal(pid);
        } else {
            *held = Held::Over;
        }
    }

    /// Whether the process may go on.
    fn hold(&self, pid: u32) -> bool {
        let mut held = self.0.lock();
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        match (*held, pid) {
            (Held::Nothing, Some(pid)) => {
                *held = Held::Running(pid);
                true
            }
            _ => false,
        }
    }

    fn let_go(&self) {
        *self.0.lock() = Held::Over;
    }
}

impl EngineCall {
    fn what(&self) -> String {
        if self.name == self.module {
            format!("the engine \"{}\"", self.name)
        } else {
            format!("the engine \"{}\" ({})", self.name, self.module)
        }
    }

    fn pack(&self) -> Result<Zeroizing<Vec<u8>>, FrameTooLong> {
        let mut packed = Zeroizing::new(vec![0; LENGTH]);
        let mut out = Encoder::new(&mut packed, Dialect::Bin);
        out.map(3).str("do").str("engine");
        out.str("module").str(&self.module);
        out.str("options").value(&self.options);
        exchange::set_length(&mut packed)?;
        Ok(packed)
    }
}

impl Bridge {
    /// Runs an engine until it returns, fails, or is ended by its leash. Blocks.
    ///
    /// # Errors
    /// [`BridgeError`], whose text names the engine; [`BridgeError::Stopped`] when its leash ended
    /// it before it had begun. An engine that was ended later has died.
    pub fn run_engine(&self, engine: &EngineCall, leash: &EngineHandle) -> Result<(), BridgeError> {
        let what = || engine.what();
        let python = self.python_that_runs(&what)?;
        let request = engine.pack().map_err(|problem| BridgeError::Unfit {
            what: what(),
            problem,
        })?;
        let lane = format!("engine {}", engine.name);
        let mut helper = Helper::spawn(&python, &lane).map_err(|error| BridgeError::NoHelper {
            what: what(),
            reason: format!("cannot be started: {error}"),
        })?;
        if !leash.hold(helper.pid()) {
            return Err(BridgeError::Stopped { what: what() });
        }
        let up = helper.come_up(false, &self.settings, Instant::now() + COMING_UP);
        let is_up = up.is_ok();
        let given =
            up.and_then(|()| helper.call(&request, Instant::now() + LIFETIME, &mut |_, _| {}));
        if let Err(broken) = &given {
            helper.wait_for_exit(broken, Instant::now() + LIFETIME);
        }
        // From here on its number may be another's.
        leash.let_go();
        match given {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(Problem::Refused(problem))) => Err(BridgeError::Refused {
                what: what(),
                problem,
            }),
            Ok(Err(Problem::Failed(problem))) => Err(BridgeError::Failed {
                what: what(),
                problem,
            }),
            Err(broken) => Err(died(what(), helper, &broken, is_up)),
        }
    }
}

fn died(what: String, helper: Helper, broken: &HelperFailure, is_up: bool) -> BridgeError {
    let how = helper.exit_report(broken);
    if is_up {
        BridgeError::Died { what, how }
    } else {
        BridgeError::NoHelper { what, reason: how }
    }
}
