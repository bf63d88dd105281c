//! `saltern_batch`, clear and our own: a user asks the master to drive a batch.
//!
//! A publish with one entry more, `batch`, a map of: `size` (such as `2` or `25%`), or `safe_limit`
//! and `safe_size` (a batch of `safe_size` when at least `safe_limit` minions match, else all
//! minions at once), `wait` (seconds), `failhard`, `subset` (so many minions, chosen at random),
//! `timeout` and `gather_job_timeout` (seconds). Minions that are certainly not connected are left
//! out and named as `down`: stock pings all minions first to find that out. A stock master does not
//! know the command and does nothing; a `publish` with an entry that it ignores would reach every
//! minion at once.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use saltern_model::{BatchSize, Jid, MinionId, Standing};
use saltern_policy::target::Resolved;
use saltern_wire::msgpack::Value;
use serde::Serialize;

use crate::audit::AuditNote;
use crate::batch_plan::seconds_of;
use crate::credentials::{NotProved, Sender};
use crate::job::jid_owner::Owner;
use crate::job::{self, Refused, Request, below, load, refusal};
use crate::{BatchPlan, Effect, Outcome, Services, python_text, reply, syndics};

/// The command's name.
pub(crate) const COMMAND: &str = "saltern_batch";

/// Begins the batch, or answers with a refusal.
pub(crate) fn handle(
    load: &Value,
    proof: Result<Sender, NotProved>,
    services: &Services,
) -> Outcome {
    begin(load, proof, services)
        .unwrap_or_else(|refused| refusal::refusal(COMMAND, load, refused, services))
}

/// The load of the answer.
#[derive(Serialize)]
struct Begun<'a> {
    jid: &'a Jid,
    minions: &'a [MinionId],
    missing: Value,
    /// Not connected, and so left out.
    down: &'a [MinionId],
    batch_size: usize,
}

fn begin(
    load: &Value,
    proof: Result<Sender, NotProved>,
    services: &Services,
) -> Result<Outcome, Refused> {
    let admitted = job::admit(load, proof, services)?;
    let sender = admitted.sender();
    let load = &*sender.sign(load);
    let load = &*load::with_rights(load, sender.rights(), services);
    let request = Request::read(load, services.config.salt_compat)?;
    let wishes = BatchOptions::read(load.get("batch").ok_or(Refused::Malformed("batch"))?)?;
    let no_match = || Ok(Outcome::reply(refusal::no_match(load)));
    let mut resolved = job::resolve_allowed(load, &request, sender, services)?;
    let below = request.target.as_ref();
    let below = below.map(|target| below::of_sender(load, &request, target, sender, services));
    let below = below.unwrap_or_default().minions;
    if resolved.minions.is_empty() && below.is_empty() {
        return no_match();
    }
    if !below.is_empty() {
        let found: HashSet<&str> = below.iter().map(MinionId::as_str).collect();
        let missing = &mut resolved.missing;
        missing.retain(|name| !found.contains(name.as_str()));
        resolved.minions.extend(below);
    }
    let (there, down) = part_by_presence(resolved.minions, services);
    if there.is_empty() {
        let names: Vec<&str> = down.iter().map(MinionId::as_str).collect();
        let names = names.join(", ");
        return Err(Refused::Because(format!("not connected: {names}")));
    }
    resolved.minions = there;
    if let Some(count) = wishes.subset {
        resolved.minions = subset(resolved.minions, count);
    }
    let plan = plan(load, sender.owner(), wishes, &resolved, services)?;
    let answer = Begun {
        jid: &plan.jid,
        minions: &resolved.minions,
        missing: job::missing(&resolved),
        down: &down,
        batch_size: plan.size,
    };
    Ok(Outcome {
        reply: reply::clear_load(&answer),
        reply_if_not_stored: reply::plain_error(
            "the master could not store the batch, or drives too many already, so it was not \
             begun; see the master's log",
        ),
        later: None,
        audit: AuditNote::default(),
        effects: vec![Effect::StartBatch(Box::new(plan))],
    })
}

fn plan(
    load: &Value,
    owner: Owner,
    wishes: BatchOptions,
    resolved: &Resolved,
    services: &Services,
) -> Result<BatchPlan, Refused> {
    let part = |name: &'static str| load.get(name).cloned().ok_or(Refused::Malformed(name));
    let size = wishes.size(resolved.minions.len())?;
    let options = load.get("kwargs").map(job::without_secrets);
    Ok(BatchPlan {
        jid: services.minter.mint(),
        created: services.clock.unix_micros(),
        minions: resolved.minions.clone(),
        size,
        wait: wishes.wait.unwrap_or_default(),
        failhard: wishes.failhard,
        timeout: wishes.timeout.unwrap_or(services.config.timeout),
        gather_job_timeout: wishes
            .gather_job_timeout
            .unwrap_or(services.config.gather_job_timeout),
        user: owner.name,
        backend: owner.backend,
        tgt: part("tgt")?,
        tgt_type: load
            .get("tgt_type")
            .and_then(Value::as_str)
            .unwrap_or("glob")
            .to_owned(),
        fun: part("fun")?,
        arg: part("arg")?
            .as_array()
            .ok_or(Refused::Malformed("arg"))?
            .to_vec(),
        kwargs: Value::Map(Vec::new()),
        ret: part("ret")?,
        options: Value::Map(options.unwrap_or_default()),
        audit: None,
    })
}

/// Splits minions into those that may be connected and those that certainly are not.
fn part_by_presence(minions: Vec<MinionId>, services: &Services) -> (Vec<MinionId>, Vec<MinionId>) {
    let is_there = |id: &MinionId| !matches!(syndics::standing(id, services), Standing::Away(_));
    minions.into_iter().partition(is_there)
}

/// A random subset of the minions, in their order.
fn subset(mut minions: Vec<MinionId>, count: usize) -> Vec<MinionId> {
    let chance = RandomState::new();
    minions.sort_by_cached_key(|id| chance.hash_one(id));
    minions.truncate(count);
    minions.sort_unstable();
    minions
}

/// Options of a batch: the entry `batch`.
struct BatchOptions {
    size: Option<BatchSize>,
    safe_limit: Option<usize>,
    safe_size: Option<BatchSize>,
    subset: Option<usize>,
    wait: Option<Duration>,
    timeout: Option<Duration>,
    gather_job_timeout: Option<Duration>,
    failhard: bool,
}

impl BatchOptions {
    fn read(wishes: &Value) -> Result<Self, Refused> {
        let given = |name: &str| wishes.get(name).filter(|value| !value.is_nil());
        let size = |name: &str| given(name).map(batch_size).transpose();
        let count = |name: &'static str| {
            let count = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
            let wrong = || Refused::Because(format!("\"{name}\" is not a number of minions"));
            given(name)
                .map(|value| count(value).filter(|count| *count > 0).ok_or_else(wrong))
                .transpose()
        };
        let time = |name: &'static str| {
            let wrong = || Refused::Because(format!("\"{name}\" is not a number of seconds"));
            given(name)
                .map(|value| seconds_of(value).ok_or_else(wrong))
                .transpose()
        };
        Ok(Self {
            size: size("size")?,
            safe_limit: count("safe_limit")?,
            safe_size: size("safe_size")?,
            subset: count("subset")?,
            wait: time("wait")?,
            timeout: time("timeout")?,
            gather_job_timeout: time("gather_job_timeout")?,
            failhard: given("failhard").and_then(Value::as_bool) == Some(true),
        })
    }

    /// The number of concurrent minions for so many in all.
    fn size(&self, minions: usize) -> Result<usize, Refused> {
        match (self.size, self.safe_limit, self.safe_size) {
            (Some(size), _, _) => Ok(size.of(minions)),
            (None, Some(limit), Some(_)) if minions < limit => Ok(minions),
            (None, Some(_), Some(size)) => Ok(size.of(minions)),
            _ => Err(Refused::Because(
                "a batch has a \"size\", or a \"safe_limit\" and a \"safe_size\"".to_owned(),
            )),
        }
    }
}

fn batch_size(value: &Value) -> Result<BatchSize, Refused> {
    let text = python_text::str(value).unwrap_or_default();
    BatchSize::parse(&text).map_err(|error| Refused::Because(error.to_string()))
}
