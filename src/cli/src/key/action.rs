//! The action of a command line of `salt-key`: stock takes the first one of its own order and
//! ignores the others.

use crate::options::KeyOptions;

/// An action of `salt-key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// `--gen-keys`, with the name.
    GenerateKeys(String),
    /// `--gen-signature`.
    GenerateSignature,
    /// `-l`, `-L`: the keys of a kind.
    List(String),
    /// `-p`, `-P`: the public keys that match.
    Print(String),
    /// `-a`, `-A`, `-r`, `-R`, `-d`, `-D`: changes the keys that match.
    Change(Change, String),
    /// `-f`, `-F`: the fingerprints of the keys that match.
    Finger(String),
}

/// A change of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Accept,
    Reject,
    Delete,
}

impl Change {
    /// The past participle that stock prints of a changed key.
    pub(super) const fn done(self) -> &'static str {
        match self {
            Self::Accept => "accepted",
            Self::Reject => "rejected",
            Self::Delete => "deleted",
        }
    }
}

impl Action {
    /// The action of a command line; without any, all keys are listed.
    pub(super) fn of(options: &KeyOptions) -> Self {
        let all = || "*".to_owned();
        let text = |option: &Option<String>| option.clone().filter(|text| !text.is_empty());
        let flag = |option: Option<bool>| option == Some(true);
        if let Some(name) = text(&options.gen_keys) {
            return Self::GenerateKeys(name);
        }
        if flag(options.gen_signature) {
            return Self::GenerateSignature;
        }
        if let Some(kind) = text(&options.list) {
            return Self::List(kind);
        }
        if flag(options.list_all) {
            return Self::List("all".to_owned());
        }
        let pattern =
            |one: &Option<String>, every: Option<bool>| text(one).or_else(|| flag(every).then(all));
        if let Some(pattern) = pattern(&options.print, options.print_all) {
            return Self::Print(pattern);
        }
        let changes = [
            (Change::Accept, &options.accept, options.accept_all),
            (Change::Reject, &options.reject, options.reject_all),
            (Change::Delete, &options.delete, options.delete_all),
        ];
        for (change, one, every) in changes {
            if let Some(pattern) = pattern(one, every) {
                return Self::Change(change, pattern);
            }
        }
        match pattern(&options.finger, options.finger_all) {
            Some(pattern) => Self::Finger(pattern),
            None => Self::List("all".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_action_of_stocks_order_counts() {
        let options = |change: &dyn Fn(&mut KeyOptions)| {
            let mut options = KeyOptions::default();
            change(&mut options);
            Action::of(&options)
        };
        let list = |kind: &str| Action::List(kind.to_owned());
        assert_eq!(options(&|_| ()), list("all"));
        assert_eq!(
            options(&|all| {
                all.list = Some("acc".to_owned());
                all.accept = Some("x".to_owned());
            }),
            list("acc")
        );
        assert_eq!(
            options(&|all| {
                all.finger_all = Some(true);
                all.delete_all = Some(true);
                all.delete = Some("x".to_owned());
            }),
            Action::Change(Change::Delete, "x".to_owned())
        );
        assert_eq!(
            options(&|all| all.accept = Some(String::new())),
            list("all")
        );
    }
}
