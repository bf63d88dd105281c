//! Accepted minions and their state as lines, with tabs between fields: between the master and
//! local programs such as `saltern top`.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use saltern_model::{MinionId, Target, TargetType};
use saltern_runners::Fleet;

use super::{ControlError, ask, garbled};

/// A minion with an accepted key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenMinion {
    /// Which.
    pub id: MinionId,
    /// Whether it is, or may be, connected.
    pub is_present: bool,
    /// When its last request came, in microseconds since 1970.
    pub last_heard: Option<i64>,
    /// The address of its connection, or of its last request.
    pub address: Option<IpAddr>,
    /// Its presence state, in words.
    pub standing: String,
}

/// The minions with an accepted key, sorted by id.
///
/// # Errors
/// No answer, or one that cannot be parsed.
pub fn ask_minions(sock_dir: &Path) -> Result<Vec<SeenMinion>, ControlError> {
    let text = ask(sock_dir, "minions")?;
    let minions: Option<Vec<_>> = text.lines().map(SeenMinion::from_line).collect();
    Ok(minions.ok_or_else(|| garbled("not a list of minions"))?)
}

/// The answer of the master.
pub(super) fn answer(fleet: &dyn Fleet) -> String {
    let everybody = Target::Expression(TargetType::Glob, "*".to_owned());
    match fleet.matching(&everybody) {
        Ok(ids) => ids
            .into_iter()
            .map(|id| SeenMinion::of(fleet, id).to_line())
            .collect(),
        Err(error) => format!("error: {error}\n"),
    }
}

impl SeenMinion {
    fn of(fleet: &dyn Fleet, id: MinionId) -> Self {
        let standing = fleet.standing(&id);
        Self {
            is_present: standing.is_present(),
            last_heard: fleet.last_heard(&id),
            address: fleet.address(&id),
            standing: standing.to_string(),
            id,
        }
    }

    fn to_line(&self) -> String {
        let mut line = format!("{}\t{}\t", self.id, u8::from(self.is_present));
        // Writing to a text does not fail.
        let _ = match self.last_heard {
            Some(at) => write!(line, "{at}\t"),
            None => write!(line, "{NOTHING}\t"),
        };
        let _ = match self.address {
            Some(address) => writeln!(line, "{address}\t{}", self.standing),
            None => writeln!(line, "{NOTHING}\t{}", self.standing),
        };
        line
    }

    fn from_line(line: &str) -> Option<Self> {
        let mut fields = line.splitn(5, '\t');
        let id = MinionId::parse(fields.next()?).ok()?;
        let is_present = fields.next()? == "1";
        let last_heard = known(fields.next()?)?;
        let address = known(fields.next()?)?;
        Some(Self {
            id,
            is_present,
            last_heard,
            address,
            standing: fields.next()?.to_owned(),
        })
    }
}

/// Stands for what is not known.
const NOTHING: &str = "-";

/// What a field says, nothing for [`NOTHING`]; none at all when it cannot be read.
fn known<T: std::str::FromStr>(field: &str) -> Option<Option<T>> {
    match field {
        NOTHING => Some(None),
        text => text.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minion_line_round_trips() {
        let known = SeenMinion {
            id: MinionId::parse("web1").unwrap(),
            is_present: true,
            last_heard: Some(1_700_000_000_000_000),
            address: Some([127, 0, 0, 1].into()),
            standing: "connected".to_owned(),
        };
        let unknown = SeenMinion {
            is_present: false,
            last_heard: None,
            address: None,
            standing: "away: it has not connected".to_owned(),
            ..known.clone()
        };
        for minion in [known, unknown] {
            let line = minion.to_line();
            assert_eq!(SeenMinion::from_line(line.trim_end()), Some(minion));
        }
        for garbled in ["", "web1", "web1\t1\tsoon\t-\tx", "web1\t1\t-\tthere\tx"] {
            assert_eq!(SeenMinion::from_line(garbled), None, "{garbled:?}");
        }
    }
}
