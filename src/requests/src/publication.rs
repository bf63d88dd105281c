//! What goes out to the minions for a job: its load with the target as it was asked for, or with the
//! ids that this master found.

use saltern_base::trace;
use saltern_model::{MinionId, Target, TargetType};
use saltern_policy::target::Resolved;
use saltern_wire::msgpack::{Dialect, Encoder, Value};

use crate::Services;
use crate::outcome::{Publication, Topics};

/// How the target of a job goes out to the minions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentAs {
    /// As it was asked for: each minion reads it once more and decides for itself.
    Target,
    /// As the list of the minions that this master found: what it has decided is carried out,
    /// whatever a minion would make of the target.
    Ids,
}

/// The entry of a stored load that says so of the job.
pub(crate) const SENT_AS: &str = "saltern_sent_as";

impl SentAs {
    /// For a sender whose rules name minions: the list. Minions below syndics are not known here, so
    /// above syndics the target itself has to go out, and only one by ids may, which every minion
    /// here reads as this master does; those below hold the rules against it once more. `None` where
    /// neither is certain.
    pub(crate) fn of_limited(
        target: &Target,
        resolved: &Resolved,
        services: &Services,
    ) -> Option<Self> {
        use TargetType::{Glob, List, Pcre};
        if resolved.may_mean_more {
            return None;
        }
        match services.site.order_masters {
            false => Some(Self::Ids),
            true => matches!(target.kind(), Glob | List | Pcre).then_some(Self::Target),
        }
    }

    /// How a stored job was sent.
    pub(crate) fn of_stored(load: &Value) -> Self {
        match load.get(SENT_AS).and_then(Value::as_str) {
            Some("ids") => Self::Ids,
            _ => Self::Target,
        }
    }
}

/// What goes out to these minions: the entries, with the minions themselves in the place of the
/// target where the job is sent as their ids.
pub(crate) fn publication(
    mut entries: Vec<(Value, Value)>,
    target: &Target,
    (minions, sent_as): (&[MinionId], SentAs),
    services: &Services,
) -> Publication {
    if sent_as == SentAs::Ids {
        let ids = minions.iter().map(|id| id.as_str().into());
        entries.retain(|(name, _)| !matches!(name.as_str(), Some("tgt" | "tgt_type")));
        entries.push(("tgt".into(), Value::Array(ids.collect())));
        entries.push(("tgt_type".into(), TargetType::List.wire_name().into()));
    }
    let mut packed = Vec::new();
    let mut encoder = Encoder::new(&mut packed, Dialect::Raw);
    for (name, value) in &entries {
        encoder.value(name).value(value);
    }
    // A resource has no subscription of its own.
    let has_resources = services.pki.accepted().is_ok_and(|accepted| {
        let mut minions = minions.iter();
        !minions.all(|id| accepted.contains(id.as_str()))
    });
    let is_by_ids = match target.kind() {
        TargetType::Glob | TargetType::List | TargetType::Pcre => true,
        _ => sent_as == SentAs::Ids,
    };
    let topics = match is_by_ids && !has_resources {
        true => Topics::Minions(minions.to_vec()),
        false => Topics::Broadcast,
    };
    Publication {
        entries: entries.len(),
        packed: packed.into(),
        topics,
        trace: trace::current(),
    }
}
