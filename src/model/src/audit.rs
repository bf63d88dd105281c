//! One row of the audit trail: who had what done, from where, with what verdict.

use std::net::IpAddr;

use crate::Jid;

/// Declares an enumeration whose values have a fixed text: in the database, as labels, as options.
macro_rules! named {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $value:ident = $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $value,)+
        }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$value,)+];

            /// Its text.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }

            /// The value of a text.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text)
            }
        }
    };
}

named! {
    /// Way by which a request entered the master.
    AuditDoor {
        /// The request port (4506): command lines and other clients of users.
        Port = "port",
        /// The HTTP API.
        Api = "api",
        /// The web console.
        Console = "console",
        /// The reactor.
        Reactor = "reactor",
        /// The master's schedule.
        Schedule = "schedule",
        /// A minion, as far as `peer` and `peer_run` allow.
        Minion = "minion",
        /// A syndic, for a higher master.
        Syndic = "syndic",
        /// The master itself.
        Master = "master",
    }
}

named! {
    /// Kind of the proof of a sender.
    AuditProof {
        /// The key of a local user.
        Key = "key",
        /// A token.
        Token = "token",
        /// A name and a password that a backend knows.
        Eauth = "eauth",
        /// The session of a minion.
        Session = "session",
        /// It is the master itself.
        Own = "own",
        /// None: the sender is not proved, and the user is what the request claims.
        None = "none",
    }
}

named! {
    /// Decision about a request.
    AuditVerdict {
        /// It was carried out, or begun.
        Allowed = "allowed",
        /// It was not.
        Refused = "refused",
    }
}

/// One row of the audit trail. Its number and hash are given when it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// When it was decided, in microseconds since 1970-01-01 UTC.
    pub at: i64,
    /// The way in.
    pub door: AuditDoor,
    /// The user, or the minion; only claimed where nothing is proved.
    pub user: String,
    /// The backend that knows the user; `None` for a local one.
    pub backend: Option<String>,
    /// How the user was proved.
    pub proof: AuditProof,
    /// Where the request came from; `None` of the master's own.
    pub origin: Option<IpAddr>,
    /// The command on the wire (`publish`, `runner`, …).
    pub cmd: String,
    /// The function, or the functions joined by commas.
    pub fun: String,
    /// The target, of jobs.
    pub tgt: Option<String>,
    /// The name of its type.
    pub tgt_type: Option<String>,
    /// The arguments as JSON, without what is hidden and of bounded size.
    pub arguments: String,
    /// The decision.
    pub verdict: AuditVerdict,
    /// Why, of a refusal.
    pub reason: Option<String>,
    /// The job or call that it led to.
    pub jid: Option<Jid>,
    /// Refusals of unproved senders since the row before that have none of their own, because there
    /// were too many.
    pub suppressed: u64,
}

/// A row of the audit trail as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number: rows are numbered from 1 without gaps, in the order of their commits.
    pub number: i64,
    /// Its content.
    pub record: AuditRecord,
    /// SHA-256 of the hash of the row before and of this row's content.
    pub hash: [u8; 32],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_each_value_is_parsed_back() {
        for door in AuditDoor::ALL {
            assert_eq!(AuditDoor::parse(door.as_str()), Some(*door));
        }
        for proof in AuditProof::ALL {
            assert_eq!(AuditProof::parse(proof.as_str()), Some(*proof));
        }
        assert_eq!(AuditVerdict::parse("refused"), Some(AuditVerdict::Refused));
        assert_eq!(AuditVerdict::parse("maybe"), None);
    }
}
