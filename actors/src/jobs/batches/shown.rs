//! State files and list of active batches, exchanged with stock's tools in both directions.
//!
//! Nothing here decides what a batch does. A file that cannot be written is reported and written
//! again with the next change; a batch does not wait for it.

use actix::Context;
use saltern_model::{Jid, MinionId};
use saltern_requests::{BatchDriver, BatchPlan};
use saltern_wire::msgpack::{Dialect, MapView, RawValue, Value, encode};

use super::batch::{Batch, Now};
use super::events::BatchNews;
use super::{Batches, MAX_BATCHES, SHOW_INTERVAL, Sent};
use crate::messages::{BatchCall, Fire};

impl Batches {
    /// Writes the state file of a batch, at most once per `SHOW_INTERVAL`; later changes follow.
    pub(super) fn show(&self, batch: &mut Batch, now: Now) {
        let is_fresh = |at| now.moment.saturating_sub(at) < SHOW_INTERVAL;
        let was_fresh = batch.written.is_some_and(is_fresh);
        batch.is_behind = true;
        if !was_fresh {
            self.write_state(batch, now);
        }
    }

    /// Writes the state files that are behind.
    pub(super) fn show_what_is_behind(&mut self) {
        let now = self.now();
        let mut batches = std::mem::take(&mut self.batches);
        for batch in batches.values_mut().filter(|batch| batch.is_behind) {
            self.write_state(batch, now);
        }
        self.batches = batches;
    }

    /// Writes the state of a batch.
    pub(super) fn write_state(&self, batch: &mut Batch, now: Now) {
        batch.is_behind = false;
        batch.written = Some(now.moment);
        if !self.seed.shows_states {
            return;
        }
        let state = batch.plan.pack(&batch.snapshot(now));
        if let Err(error) = self.seed.files.write(&batch.plan.jid, state.as_ref()) {
            tracing::error!(jid = %batch.plan.jid, %error, "the state of a batch is not shown");
        }
    }

    /// Puts a batch on the list of active ones, or takes it off.
    pub(super) fn set_listed(&mut self, jid: &Jid, is_listed: bool) {
        if !is_listed {
            self.foreign.remove(jid);
        }
        if is_listed && !self.seed.shows_states {
            return;
        }
        if let Err(error) = self.seed.files.set_active(jid, is_listed) {
            tracing::error!(%jid, %error, "the list of active batches cannot be changed");
        }
    }

    /// Adopts batches on the list that are not known yet.
    pub(super) fn look_at_list(&mut self, sent: Sent, context: &mut Context<Self>) {
        let listed = match self.seed.files.active() {
            Ok(listed) => listed,
            Err(error) => {
                tracing::error!(%error, "the list of active batches cannot be read");
                return;
            }
        };
        for jid in listed {
            if self.foreign.contains(&jid) {
                self.forget_if_gone(&jid);
            } else if !self.batches.contains_key(&jid) {
                self.adopt(&jid, sent, context);
            }
        }
    }

    /// A command line that was killed leaves its batch on the list, where it stays as long as its
    /// job is kept.
    fn forget_if_gone(&mut self, jid: &Jid) {
        if matches!(self.seed.files.has_state(jid), Ok(false)) {
            self.set_listed(jid, false);
        }
    }

    /// Adopts a batch whose state stock's command line has left, if the master is to drive it.
    pub(super) fn adopt(&mut self, jid: &Jid, sent: Sent, context: &mut Context<Self>) {
        if self.batches.contains_key(jid) {
            return;
        }
        match self.seed.reader.batch(jid) {
            Ok(Some(known)) if !known.is_open => return self.set_listed(jid, false),
            Ok(Some(_)) => {
                self.seed.feed.follow(jid);
                return self.retake(jid, sent, context);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%jid, %error, "a batch cannot be looked up");
                return;
            }
        }
        let state = match self.seed.files.read(jid) {
            Ok(Some(state)) => state,
            Ok(None) => return self.set_listed(jid, false),
            Err(error) => {
                tracing::error!(%jid, %error, "a batch cannot be taken over");
                return self.set_listed(jid, false);
            }
        };
        match BatchDriver::of(&state) {
            Some(BatchDriver::Master) => self.take_over(jid, &state, sent, context),
            Some(BatchDriver::Cli) => _ = self.foreign.insert(jid.clone()),
            None => {
                tracing::error!(%jid, "a batch cannot be taken over: its state names no driver");
                self.set_listed(jid, false);
            }
        }
    }

    fn take_over(&mut self, jid: &Jid, state: &Value, sent: Sent, context: &mut Context<Self>) {
        let (plan, snapshot) = match BatchPlan::from_state(&RawValue::pack(state, Dialect::Bin)) {
            Ok((plan, _)) if plan.jid != *jid => {
                tracing::error!(%jid, other = %plan.jid, "the state of a batch is another's");
                return self.set_listed(jid, false);
            }
            Ok(read) => read,
            Err(error) => {
                tracing::error!(%jid, %error, "a batch cannot be taken over");
                return self.set_listed(jid, false);
            }
        };
        if snapshot.halted.is_some() {
            return self.set_listed(jid, false);
        }
        if self.batches.len() >= MAX_BATCHES {
            tracing::debug!(%jid, "a batch waits: too many are open");
            return;
        }
        tracing::info!(
            %jid, user = %plan.user, minions = plan.minions.len(), size = plan.size,
            "a batch is taken over"
        );
        let state = plan.pack(&snapshot);
        let jid = jid.clone();
        self.store_plan(plan, state, sent, context, move |batches, is_stored, _| {
            if is_stored {
                batches.set_listed(&jid, true);
            } else {
                // Still on the list, so it is tried again.
                tracing::error!(%jid, "a batch could not be stored; it is taken over later");
            }
        });
    }

    // --- batches that a command line drives

    /// Keeps the state that a command line sends of its own batch; whether there was one.
    pub(super) fn show_foreign(&mut self, jid: &Jid, call: BatchCall, data: &MapView) -> bool {
        let Some(state) = data.get("state").filter(|state| state.is_map()) else {
            return false;
        };
        let fields = state.as_map().unwrap_or_default();
        if fields.str("driver") != Some("cli")
            || fields.str("jid") != Some(jid.as_str())
            || self.batches.contains_key(jid)
        {
            return false;
        }
        if let Err(error) = self.seed.files.write(jid, &state.to_bin_dialect()) {
            tracing::error!(%jid, %error, "the state of a batch is not shown");
        }
        match call {
            BatchCall::New => {
                self.foreign.insert(jid.clone());
                self.set_listed(jid, true);
            }
            BatchCall::Over => self.set_listed(jid, false),
            _ => {}
        }
        true
    }

    /// Stops a batch that a command line drives, by the event that it waits for, as stock does.
    /// Whether there was such a batch.
    pub(super) fn stop_foreign(
        &mut self,
        jid: &Jid,
        reason: &str,
        kills: bool,
        context: &mut Context<Self>,
    ) -> bool {
        let state = match self.seed.files.read(jid) {
            Ok(state) => state,
            Err(error) => {
                tracing::error!(%jid, %error, "a batch cannot be stopped");
                return false;
            }
        };
        let Some(state) = state.filter(|state| BatchDriver::of(state) == Some(BatchDriver::Cli))
        else {
            return false;
        };
        let Ok((plan, snapshot)) = BatchPlan::from_state(&RawValue::pack(&state, Dialect::Bin))
        else {
            tracing::error!(%jid, "a batch cannot be stopped: its state cannot be read");
            return false;
        };
        if snapshot.halted.is_some() {
            self.set_listed(jid, false);
            return false;
        }
        if kills {
            let active: Vec<MinionId> = snapshot.active.iter().map(|(id, _)| id.clone()).collect();
            self.kill(&plan, &active, context);
        }
        let now = self.now();
        let halted = halted(state, reason, now.unix);
        if let Err(error) = self.seed.files.write(jid, &encode(&halted, Dialect::Bin)) {
            tracing::error!(%jid, %error, "the state of a batch is not shown");
        }
        let news = BatchNews::halted(&plan, &snapshot, reason, now.unix);
        let event = self.event(&plan, &news);
        self.outbox.push(context, &self.seed.bus, Fire(vec![event]));
        self.set_listed(jid, false);
        true
    }
}

/// The state with its end.
fn halted(state: Value, reason: &str, now: i64) -> Value {
    let changed = [
        ("halted", Value::from(true)),
        ("halted_reason", reason.into()),
        ("last_progress", saltern_requests::time(now)),
    ];
    let Value::Map(mut entries) = state else {
        return state;
    };
    for (name, value) in changed {
        entries.retain(|(key, _)| key.as_str() != Some(name));
        entries.push((name.into(), value));
    }
    Value::Map(entries)
}
