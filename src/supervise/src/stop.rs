//! Shutdown of the tree: in reverse order of starting, each child with its own budget to drain.
//!
//! Children are started from the sink backwards, so the sources (listeners) stop first: they
//! take nothing new, what they have passed on drains through those who still run, and the sinks
//! (the job store) stop last.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use crate::{
    ActorId,
    line::{Command, Line},
    tree::{Level, Shared},
};

/// How long a child may take to obey a plain stop. Longer means that its thread is stuck.
const GRACE: Duration = Duration::from_secs(1);

/// How the stop went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Actors that did not finish draining within their budget and were cut short.
    pub overran: Vec<ActorId>,
    /// Actors whose thread did not even obey the stop; only the end of the process helps.
    pub stuck: Vec<ActorId>,
}

impl Stopped {
    /// Everyone finished in time.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.overran.is_empty() && self.stuck.is_empty()
    }
}

pub(crate) async fn shutdown(shared: &Arc<Shared>) -> Stopped {
    let mut first = false;
    shared.level.send_if_modified(|level| {
        first = *level == Level::Running;
        let next = if first {
            Level::Draining
        } else {
            (*level).max(Level::Hurrying)
        };
        std::mem::replace(level, next) != next
    });
    let stopped = if first {
        in_order(shared).await
    } else {
        at_once(shared).await
    };
    shared.level.send_replace(Level::Over);
    shared.stop_threads();
    stopped
}

async fn in_order(shared: &Shared) -> Stopped {
    let mut stopped = Stopped::default();
    for (line, budget) in shared.lines().into_iter().rev() {
        if !budget.is_zero() && *shared.level.borrow() == Level::Draining {
            tracing::debug!(actor = %line.actor, "actor is asked to finish");
            line.command(Command::Drain);
            let mut level = shared.level.subscribe();
            let ended = tokio::select! {
                () = line.over() => true,
                () = tokio::time::sleep(budget) => false,
                _ = level.wait_for(|level| *level > Level::Draining) => false,
            };
            if ended {
                continue;
            }
            stopped.overran.push(line.actor);
            tracing::warn!(actor = %line.actor, "actor did not finish in time and is cut short");
        }
        cut_short(&line, &mut stopped).await;
    }
    stopped
}

async fn at_once(shared: &Shared) -> Stopped {
    let lines = shared.lines();
    for (line, _) in &lines {
        line.command(Command::Stop);
    }
    let mut stopped = Stopped::default();
    for (line, _) in lines.iter().rev() {
        cut_short(line, &mut stopped).await;
    }
    stopped
}

async fn cut_short(line: &Line, stopped: &mut Stopped) {
    line.command(Command::Stop);
    if timeout(GRACE, line.over()).await.is_err() {
        tracing::error!(actor = %line.actor, "the actor's thread is stuck and does not stop");
        stopped.stuck.push(line.actor);
    }
}
