//! The options of `salt-master`.

use super::common::{ConfigOptions, LogOptions, leading, logging, shares};
use super::definition::{Action, Group, OptionDefinition};
use super::grammar::Grammar;
use super::read::CommandOptions;

/// The options of `salt-master`.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "named as on the command line")]
pub struct MasterOptions {
    pub config: ConfigOptions,
    pub logging: LogOptions,
    pub user: Option<String>,
    pub daemon: Option<bool>,
    pub pid_file: Option<String>,
    /// Without effect here: nothing starts the master anew but the service manager.
    pub disable_keepalive: Option<bool>,
}

shares!(MasterOptions:
    config: ConfigOptions,
    logging: LogOptions,
);

impl CommandOptions for MasterOptions {
    fn grammar() -> Grammar<Self> {
        let own = OptionDefinition::<Self>::new;
        let mut first = leading();
        first.extend([
            own(
                "-u --user",
                "user",
                Action::Text(|all| &mut all.user),
                "User that the master runs as.",
            ),
            own(
                "-d --daemon",
                "daemon",
                Action::Flag(|all| &mut all.daemon, true),
                "Run in the background.",
            ),
            own(
                "--pid-file",
                "pidfile",
                Action::Text(|all| &mut all.pid_file),
                "File for the process id. Default: '/var/run/salt-master.pid'.",
            ),
            own(
                "--disable-keepalive",
                "disable_keepalive",
                Action::Flag(|all| &mut all.disable_keepalive, true),
                "Accepted for stock's sake: only a service manager starts this master anew.",
            ),
        ]);
        Grammar {
            program: "salt-master",
            usage: "[options]",
            description: "Run the master.",
            groups: vec![
                Group {
                    title: "",
                    description: "",
                    options: first,
                },
                logging("-l --log-level", "log_file", "/var/log/salt/master"),
            ],
        }
    }

    fn config(&self) -> &ConfigOptions {
        &self.config
    }
}
