//! Fields of a column or a condition: one of our own, or a grain.

use super::Minion;
use super::cell::Cell;

/// Fields of our own, as they are named.
const OWN: [(&str, Field); 10] = [
    ("id", Field::Id),
    ("present", Field::Present),
    ("presence", Field::Presence),
    ("address", Field::Address),
    ("last_seen", Field::LastSeen),
    ("job", Field::Job),
    ("job.function", Field::JobFunction),
    ("job.retcode", Field::JobRetcode),
    ("job.result", Field::JobResult),
    ("job.at", Field::JobAt),
];

/// A named value of a minion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Id,
    /// Whether it is connected.
    Present,
    /// The same in words, with the reason.
    Presence,
    Address,
    LastSeen,
    /// The id of the last job that it returned.
    Job,
    JobFunction,
    JobRetcode,
    /// `ok` or `failed`.
    JobResult,
    JobAt,
    /// The grain at this place of the request.
    Grain(usize),
}

/// The fields that a query needs.
#[derive(Default)]
pub(super) struct Fields {
    grains: Vec<String>,
    needs_jobs: bool,
}

impl Fields {
    /// The field of a name. `G@os` and `grains.os` are always the grain, other names a field of our own
    /// first.
    pub(super) fn field(&mut self, name: &str) -> Field {
        let grain = ["G@", "grains."]
            .iter()
            .find_map(|mark| name.strip_prefix(mark));
        let own = OWN.iter().find(|(known, _)| *known == name);
        let field = match (grain, own) {
            (None, Some((_, field))) => *field,
            (grain, _) => self.grain(grain.unwrap_or(name)),
        };
        self.needs_jobs |= field.is_of_job();
        field
    }

    fn grain(&mut self, path: &str) -> Field {
        let at = self.grains.iter().position(|known| known == path);
        Field::Grain(at.unwrap_or_else(|| {
            self.grains.push(path.to_owned());
            self.grains.len() - 1
        }))
    }

    /// The paths of all grains that were named.
    pub(super) fn grains(&self) -> Vec<String> {
        self.grains.clone()
    }

    /// Whether something of last jobs was named.
    pub(super) const fn needs_jobs(&self) -> bool {
        self.needs_jobs
    }
}

impl Field {
    pub(super) const fn is_of_job(self) -> bool {
        matches!(
            self,
            Self::Job | Self::JobFunction | Self::JobRetcode | Self::JobResult | Self::JobAt
        )
    }

    /// Whether its values are times, which are compared with ages.
    pub(super) const fn is_time(self) -> bool {
        matches!(self, Self::LastSeen | Self::JobAt)
    }

    /// Its value of a minion.
    pub(super) fn of(self, Minion { row, job, .. }: &Minion) -> Cell {
        let minion = &row.minion;
        let job = job.as_ref();
        match self {
            Self::Id => Cell::from(minion.id.as_str()),
            Self::Present => Cell::Value(minion.is_present.into()),
            Self::Presence => Cell::from(minion.standing.as_str()),
            Self::Address => minion
                .address
                .map_or(Cell::Absent, |address| address.to_string().as_str().into()),
            Self::LastSeen => minion.last_heard.map_or(Cell::Absent, Cell::Time),
            Self::Job => job.map_or(Cell::Absent, |job| (&*job.jid).into()),
            Self::JobFunction => job.map_or(Cell::Absent, |job| (&*job.fun).into()),
            Self::JobRetcode => job.map_or(Cell::Absent, |job| Cell::Value(job.retcode.into())),
            Self::JobResult => job.map_or(Cell::Absent, |job| match job.retcode {
                0 => "ok".into(),
                _ => "failed".into(),
            }),
            Self::JobAt => job.map_or(Cell::Absent, |job| Cell::Time(job.received)),
            Self::Grain(at) => match row.grains.get(at) {
                Some(Some(value)) if !value.is_null() => Cell::Value(value.clone()),
                _ => Cell::Absent,
            },
        }
    }
}
