//! Why no master runs: what a start would stumble over beyond the configuration, the ports and the
//! database. Nothing is made or changed.

use nix::unistd::{Uid, User};
use saltern_store::MasterKeys;

use super::{Complaint, Patient, chain};

pub(super) fn check(patient: &Patient) -> Vec<Complaint> {
    if patient.running.is_some() || patient.may_run {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    complaints.extend(user(&patient.loaded.config.user));
    if let Err(error) = MasterKeys::check(&patient.loaded.config) {
        let what = format!("the master's key: {}", chain(&error));
        let advice = "ask as the master's user if that is a matter of permission; else bring the key \
                      back from a backup: with a new one no minion would trust this master";
        complaints.push(Complaint::new(what, advice).error());
    }
    complaints
}

fn user(name: &str) -> Option<Complaint> {
    match User::from_name(name) {
        Ok(None) => {
            let what = format!("user: there is no account \"{name}\" on this machine");
            Some(Complaint::new(what, "correct the option user, or make the account").error())
        }
        Ok(Some(account)) => {
            let current = Uid::effective();
            let is_other = !current.is_root() && account.uid != current;
            is_other.then(|| {
                let what = format!("not all could be looked at: this is not the user \"{name}\"");
                Complaint::new(what, format!("ask again as root or \"{name}\"")).note()
            })
        }
        Err(error) => {
            let what = format!("the account \"{name}\" cannot be looked up: {error}");
            Some(Complaint::new(
                what,
                "look at the name service of this machine",
            ))
        }
    }
}

/// What is said of a master that does not run though it could.
pub(super) fn nothing_is_in_the_way() -> Complaint {
    let what = "nothing was found that would keep a master from starting";
    let advice = "start it: systemctl start saltern, or saltern master; why the last one ended is in \
                  its log: journalctl -u saltern";
    Complaint::new(what, advice).note()
}

#[cfg(test)]
mod tests {
    use saltern_config::Severity;

    use super::super::tests::patient;
    use super::*;

    #[test]
    fn damaged_key_and_unknown_user_are_errors() {
        let (_dir, stopped) = patient("");
        assert!(check(&stopped).is_empty(), "a first start makes the key");
        let pki = stopped.loaded.config.pki_dir.clone();
        assert!(!pki.exists(), "nothing is made");
        std::fs::create_dir_all(&pki).unwrap();
        std::fs::write(pki.join("master.pem"), "-----BEGIN RSA PRIV").unwrap();
        let found = check(&stopped);
        assert!(found[0].what.contains("master.pem"), "{}", found[0].what);
        assert_eq!(found[0].severity, Severity::Error);
        let (_dir, stopped) = patient("user: nobody-has-this-name\n");
        let found = check(&stopped);
        assert!(
            found[0].what.contains("nobody-has-this-name"),
            "{}",
            found[0].what
        );
    }
}
