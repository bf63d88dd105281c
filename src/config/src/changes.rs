//! The difference between two readings of the configuration.

use crate::MasterConfig;

impl MasterConfig {
    /// The names of the options that have another value in `other`, sorted; a value that is written
    /// and the same as the default is no other one.
    pub fn changed(&self, other: &Self) -> Vec<String> {
        let mut names: Vec<&str> = self.names().chain(other.names()).collect();
        names.sort_unstable();
        names.dedup();
        let differs = |name: &&str| self.node(name) != other.node(name);
        let mut changed: Vec<String> = names
            .into_iter()
            .filter(differs)
            .map(str::to_owned)
            .collect();
        // These two are kept apart from the others.
        let expose = |secret: &Option<crate::Secret>| {
            let secret = secret.as_ref();
            secret.map(|secret| secret.expose().to_owned())
        };
        for (name, one, another) in [
            ("key_pass", &self.key_pass, &other.key_pass),
            (
                "signing_key_pass",
                &self.signing_key_pass,
                &other.signing_key_pass,
            ),
        ] {
            if expose(one) != expose(another) {
                changed.push(name.to_owned());
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> MasterConfig {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("root_dir: /nowhere\nid: m\n{text}");
        std::fs::write(dir.path().join("master"), text).unwrap();
        let loaded = crate::load_master(dir.path());
        let mut config = loaded.map_err(|errors| errors.to_string()).unwrap().config;
        // The one thing that differs by itself.
        config.conf_file = std::path::PathBuf::new();
        config
    }

    #[test]
    fn reformatted_configuration_is_no_change() {
        let before = config("peer:\n  a: [test.ping]\ntimeout: 5\nkey_pass: one\n");
        let same = config("timeout: 5\npeer: {a: [test.ping]}\nkey_pass: one\nloop_interval: 60\n");
        assert_eq!(before.changed(&same), Vec::<String>::new());
        let after = config("peer:\n  a: [test.echo]\nworker_threads: 3\nkey_pass: two\n");
        assert_eq!(
            before.changed(&after),
            ["peer", "worker_threads", "key_pass"]
        );
    }
}
