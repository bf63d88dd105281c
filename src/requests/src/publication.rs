//! What goes out to the minions for a job: its load with the target as it was asked for, or with the
//! ids that this master found.

use saltern_base::trace;
use saltern_model::{MinionId, Target, TargetType};
use saltern_policy::expression::PlainWildcard;
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
    /// As it was asked for, by name alone: a wildcard that every minion reads as this master does, and
    /// whose every match, of now and later, the sender may have run it. In place of a long list.
    Wildcard,
}

/// The longest list of ids, in bytes, that goes out where a wildcard would say the same. Every
/// subscriber gets every publication, so its size counts as often as there are minions.
const MAX_LIST: usize = 4_096;

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

    /// The wildcard of a target, when it may go out in the place of these minions to whoever may have
    /// every match of it: the list is long, and each accepted minion reads it as it was read here.
    pub(crate) fn wildcard(
        target: &Target,
        resolved: &Resolved,
        services: &Services,
    ) -> Option<PlainWildcard> {
        let Target::Expression(TargetType::Glob, text) = target else {
            return None;
        };
        let bytes: usize = resolved.minions.iter().map(|id| id.as_str().len()).sum();
        if bytes <= MAX_LIST || resolved.may_mean_more || services.site.order_masters {
            return None;
        }
        let pattern = PlainWildcard::parse(text)?;
        let accepted = services.pki.accepted().ok()?;
        let mut ids = accepted.sorted().iter();
        // 3008's minions match no resource by such a word, so one that is meant needs the list.
        let has_resources = has_resources(&resolved.minions, services);
        let is_alike = !has_resources && ids.all(|id| pattern.is_read_alike_by(id.as_str()));
        is_alike.then_some(pattern)
    }

    /// What a stored load says of it, if anything.
    pub(crate) fn mark(self) -> Option<&'static str> {
        match self {
            Self::Target => None,
            Self::Ids => Some("ids"),
            Self::Wildcard => Some("wildcard"),
        }
    }

    /// How a stored job was sent.
    pub(crate) fn of_stored(load: &Value) -> Self {
        match load.get(SENT_AS).and_then(Value::as_str) {
            Some("ids") => Self::Ids,
            Some("wildcard") => Self::Wildcard,
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
    if let Some((kind, tgt)) = in_place_of_target(target, minions, sent_as) {
        entries.retain(|(name, _)| !matches!(name.as_str(), Some("tgt" | "tgt_type")));
        entries.push(("tgt".into(), tgt));
        entries.push(("tgt_type".into(), kind.wire_name().into()));
    }
    let mut packed = Vec::new();
    let mut encoder = Encoder::new(&mut packed, Dialect::Raw);
    for (name, value) in &entries {
        encoder.value(name).value(value);
    }
    // A resource has no subscription of its own.
    let has_resources = has_resources(minions, services);
    let is_by_ids = match target.kind() {
        TargetType::Glob | TargetType::List | TargetType::Pcre => true,
        _ => sent_as != SentAs::Target,
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

/// The target as minions get it, where that is not the one that was asked for. A wildcard is a
/// compound target of one word: by a wildcard proper 3008's minions mean all their resources, too,
/// whatever those are called (`_resolve_resource_targets` in `salt/minion.py`).
fn in_place_of_target(
    target: &Target,
    minions: &[MinionId],
    sent_as: SentAs,
) -> Option<(TargetType, Value)> {
    match (sent_as, target) {
        (SentAs::Target, _) => None,
        (SentAs::Wildcard, Target::Expression(TargetType::Glob, text)) => {
            Some((TargetType::Compound, text.as_str().into()))
        }
        (SentAs::Ids | SentAs::Wildcard, _) => {
            let ids = minions.iter().map(|id| id.as_str().into());
            Some((TargetType::List, Value::Array(ids.collect())))
        }
    }
}

/// Whether some of these are no minions, or not certainly.
fn has_resources(minions: &[MinionId], services: &Services) -> bool {
    services.pki.accepted().is_ok_and(|accepted| {
        let mut minions = minions.iter();
        !minions.all(|id| accepted.contains(id.as_str()))
    })
}
