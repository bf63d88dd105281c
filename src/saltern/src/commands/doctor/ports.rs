//! Whether the ports are free for a master that does not run; and whether one runs that does not
//! answer.

use std::fs::File;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

use super::{Diagnosis, Finding};

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    if diagnosis.running.is_some() || diagnosis.may_run {
        return Vec::new();
    }
    let config = &diagnosis.loaded.config;
    // The lock that a running master holds: the only sign of a master of another user.
    let lock = File::open(config.cachedir.join("saltern/lock"));
    if lock.is_ok_and(|lock| lock.try_lock_shared().is_err()) {
        if config.saltern_cluster.is_some() {
            let what = "a master is running and opens no ports: it stands by, or is stuck";
            let advice = "see \"saltern cluster status\", and its log if it is not a standby there";
            return vec![Finding::new(what, advice).note()];
        }
        let what = "a master is running, and its control socket does not answer this user";
        let advice = "ask as the master's user; else look at its log, and restart it";
        return vec![Finding::new(what, advice).error()];
    }
    let ports = [
        ("ret_port", config.ret_port),
        ("publish_port", config.publish_port),
    ];
    let taken = ports.iter().filter_map(|(option, port)| {
        let address = SocketAddr::new(config.interface, *port);
        let error = TcpListener::bind(address).err()?;
        let advice = match error.kind() {
            ErrorKind::AddrInUse => "stop the program that has it, perhaps a stock master",
            // All others are of the interface, or of who may not bind: the configuration says so,
            // once.
            _ => return None,
        };
        let what = format!("{option}: {address} cannot be had: {error}");
        Some(Finding::new(what, advice).error())
    });
    taken.collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::diagnosis;
    use super::*;

    #[test]
    fn foreign_interface_is_one_finding_and_not_one_a_port() {
        // Of a network that is for documents only (RFC 5737).
        let (_dir, diagnosis) = diagnosis("interface: 192.0.2.1\n");
        let found = super::super::configuration::check(&diagnosis);
        let of_it = found.iter().filter(|one| one.what.contains("192.0.2.1"));
        assert_eq!(of_it.count(), 1);
        assert!(check(&diagnosis).is_empty());
    }

    #[test]
    fn port_of_another_program_is_found() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = other.local_addr().unwrap().port();
        // Nobody else takes it while this test has it.
        let (_dir, diagnosis) = diagnosis(&format!("interface: 127.0.0.1\nret_port: {port}\n"));
        let findings = check(&diagnosis);
        assert!(
            findings[0].what.starts_with("ret_port: "),
            "{}",
            findings[0].what
        );
    }
}
