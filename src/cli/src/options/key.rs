//! The options of `salt-key`.

use super::common::{
    ConfigOptions, EauthOptions, LogOptions, OutputOptions, eauth, hard_crash, leading, logging,
    output, shares,
};
use super::definition::{Action, Group, OptionDefinition};
use super::ending::Ending;
use super::grammar::{Grammar, Parsed};
use super::read::CommandOptions;

/// The options of `salt-key`. An action with a text is absent when the text is empty, as in stock.
#[derive(Clone, Default)]
#[expect(missing_docs, reason = "named as on the command line")]
pub struct KeyOptions {
    pub config: ConfigOptions,
    pub output: OutputOptions,
    pub logging: LogOptions,
    pub eauth: EauthOptions,
    pub user: Option<String>,
    pub quiet: Option<bool>,
    pub yes: Option<bool>,
    /// As written; see [`KeyCommand::rotates_aes_key`].
    pub rotate_aes_key: Option<String>,
    /// As written; see [`KeyCommand::preserves_minions`].
    pub preserve_minions: Option<String>,
    pub list: Option<String>,
    pub list_all: Option<bool>,
    pub details: Option<bool>,
    pub accept: Option<String>,
    pub accept_all: Option<bool>,
    pub reject: Option<String>,
    pub reject_all: Option<bool>,
    pub include_all: Option<bool>,
    pub include_accepted: Option<bool>,
    pub include_rejected: Option<bool>,
    pub include_denied: Option<bool>,
    pub by_fingerprint: Option<bool>,
    pub print: Option<String>,
    pub print_all: Option<bool>,
    pub delete: Option<String>,
    pub delete_all: Option<bool>,
    pub finger: Option<String>,
    pub finger_all: Option<bool>,
    pub gen_keys: Option<String>,
    pub gen_keys_dir: Option<String>,
    pub keysize: Option<i64>,
    pub gen_signature: Option<bool>,
    pub private: Option<String>,
    pub signature_path: Option<String>,
    pub public: Option<String>,
    pub auto_create: Option<bool>,
}

shares!(KeyOptions:
    config: ConfigOptions,
    output: OutputOptions,
    logging: LogOptions,
    eauth: EauthOptions,
);

impl CommandOptions for KeyOptions {
    fn grammar() -> Grammar<Self> {
        let mut first = leading();
        first.extend(general());
        Grammar {
            program: "salt-key",
            usage: "[options]",
            description: "Manage the keys of minions.",
            groups: vec![
                Group {
                    title: "",
                    description: "",
                    options: first,
                },
                eauth("--auth --eauth --external-auth"),
                output(),
                Group {
                    title: "Actions",
                    description: "",
                    options: actions(),
                },
                Group {
                    title: "Key Generation Options",
                    description: "",
                    options: generation(),
                },
                logging("--log-level", "key_logfile", "/var/log/salt/key"),
            ],
        }
    }

    fn config(&self) -> &ConfigOptions {
        &self.config
    }
}

fn general() -> Vec<OptionDefinition<KeyOptions>> {
    use Action::{Flag, Text};
    let own = OptionDefinition::<KeyOptions>::new;
    vec![
        own(
            "-u --user",
            "user",
            Text(|all| &mut all.user),
            "User to run salt-key as.",
        ),
        hard_crash(),
        own(
            "-q --quiet",
            "quiet",
            Flag(|all| &mut all.quiet, true),
            "Print nothing.",
        ),
        own(
            "-y --yes",
            "yes",
            Flag(|all| &mut all.yes, true),
            "Answer every question with yes.",
        ),
        own(
            "--rotate-aes-key",
            "rotate_aes_key",
            Text(|all| &mut all.rotate_aes_key),
            "Whether deleting or rejecting a key makes the master change its session key. \
             Default: True.",
        ),
        own(
            "--preserve-minions",
            "preserve_minions",
            Text(|all| &mut all.preserve_minions),
            "Whether the cached data of a minion outlive its key. Default: False.",
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn actions() -> Vec<OptionDefinition<KeyOptions>> {
    use Action::{Flag, Text};
    let own = OptionDefinition::<KeyOptions>::new;
    vec![
        own(
            "-l --list",
            "list",
            Text(|all| &mut all.list),
            "List keys: pre, un or unaccepted; acc or accepted; rej or rejected; den or denied; all.",
        )
        .metavar("ARG"),
        own(
            "-L --list-all",
            "list_all",
            Flag(|all| &mut all.list_all, true),
            "List all keys.",
        ),
        own(
            "--details",
            "details",
            Flag(|all| &mut all.details, true),
            "With -l and -L: age, last seen, version and address of each key.",
        )
        .own(),
        own(
            "-a --accept",
            "accept",
            Text(|all| &mut all.accept),
            "Accept the pending keys that match a glob.",
        ),
        own(
            "-A --accept-all",
            "accept_all",
            Flag(|all| &mut all.accept_all, true),
            "Accept all pending keys.",
        ),
        own(
            "-r --reject",
            "reject",
            Text(|all| &mut all.reject),
            "Reject the pending keys that match a glob.",
        ),
        own(
            "-R --reject-all",
            "reject_all",
            Flag(|all| &mut all.reject_all, true),
            "Reject all pending keys.",
        ),
        own(
            "--include-all",
            "include_all",
            Flag(|all| &mut all.include_all, true),
            "Accept or reject keys in any other state, too.",
        ),
        own(
            "--include-accepted",
            "include_accepted",
            Flag(|all| &mut all.include_accepted, true),
            "Reject accepted keys, too.",
        ),
        own(
            "--include-rejected",
            "include_rejected",
            Flag(|all| &mut all.include_rejected, true),
            "Accept rejected keys, too.",
        ),
        own(
            "--include-denied",
            "include_denied",
            Flag(|all| &mut all.include_denied, true),
            "Accept or reject denied keys, too.",
        ),
        own(
            "--by-fingerprint",
            "by_fingerprint",
            Flag(|all| &mut all.by_fingerprint, true),
            "Choose keys by their fingerprint instead of by a glob of ids.",
        )
        .own(),
        own(
            "-p --print",
            "print",
            Text(|all| &mut all.print),
            "Print the keys that match a glob.",
        ),
        own(
            "-P --print-all",
            "print_all",
            Flag(|all| &mut all.print_all, true),
            "Print all keys.",
        ),
        own(
            "-d --delete",
            "delete",
            Text(|all| &mut all.delete),
            "Delete the keys that match a glob.",
        ),
        own(
            "-D --delete-all",
            "delete_all",
            Flag(|all| &mut all.delete_all, true),
            "Delete all keys.",
        ),
        own(
            "-f --finger",
            "finger",
            Text(|all| &mut all.finger),
            "Print the fingerprints of the keys that match a glob.",
        ),
        own(
            "-F --finger-all",
            "finger_all",
            Flag(|all| &mut all.finger_all, true),
            "Print the fingerprints of all keys.",
        ),
    ]
}

fn generation() -> Vec<OptionDefinition<KeyOptions>> {
    use Action::{Flag, Integer, Text};
    let own = OptionDefinition::<KeyOptions>::new;
    vec![
        own(
            "--gen-keys",
            "gen_keys",
            Text(|all| &mut all.gen_keys),
            "Make a pair of keys with this name.",
        ),
        own(
            "--gen-keys-dir",
            "gen_keys_dir",
            Text(|all| &mut all.gen_keys_dir),
            "The directory for it. Default: '.'.",
        ),
        own(
            "--keysize",
            "keysize",
            Integer(|all| &mut all.keysize),
            "Its size in bits, 2048 or more. Default: 2048.",
        ),
        own(
            "--gen-signature",
            "gen_signature",
            Flag(|all| &mut all.gen_signature, true),
            "Sign the master's public key, for minions that verify it.",
        ),
        own(
            "--priv",
            "priv",
            Text(|all| &mut all.private),
            "The private key to sign with.",
        ),
        own(
            "--signature-path",
            "signature_path",
            Text(|all| &mut all.signature_path),
            "The directory for the signature.",
        ),
        own(
            "--pub",
            "pub",
            Text(|all| &mut all.public),
            "The public key to sign.",
        ),
        own(
            "--auto-create",
            "auto_create",
            Flag(|all| &mut all.auto_create, true),
            "Make the pair of keys to sign with, if there is none.",
        ),
    ]
}

/// A command line of `salt-key` that was accepted.
#[derive(Clone)]
pub struct KeyCommand {
    /// The options.
    pub options: KeyOptions,
    /// Positional arguments, which stock ignores.
    pub arguments: Vec<String>,
}

impl KeyCommand {
    /// Checks a command line as a whole.
    ///
    /// # Errors
    /// What stock prints instead of running it.
    pub fn check(parsed: Parsed<KeyOptions>) -> Result<Self, Ending> {
        let Parsed { options, arguments } = parsed;
        let refuse = |message: &str| Err(KeyOptions::grammar().refuse(message));
        let list = options.list.as_deref().unwrap_or_default();
        let kinds = ["acc", "pre", "un", "rej", "den", "all"];
        if !list.is_empty() && !kinds.iter().any(|kind| list.starts_with(kind)) {
            return refuse(&format!("'{list}' is not a valid argument to '--list'"));
        }
        match options.keysize {
            Some(..2048) => refuse("The minimum value for keysize is 2048"),
            Some(32769..) => refuse("The maximum value for keysize is 32768"),
            _ => Ok(Self { options, arguments }),
        }
    }

    /// Whether the master's session key changes when a key is deleted or rejected.
    #[must_use]
    pub fn rotates_aes_key(&self) -> bool {
        truth(self.options.rotate_aes_key.as_deref(), true)
    }

    /// Whether the cached data of a minion outlive its key.
    #[must_use]
    pub fn preserves_minions(&self) -> bool {
        truth(self.options.preserve_minions.as_deref(), false)
    }
}

/// `true` and `false` in any case; another text counts as Python counts it.
fn truth(text: Option<&str>, default: bool) -> bool {
    match text {
        None => default,
        Some(text) => !text.is_empty() && !text.eq_ignore_ascii_case("false"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str]) -> Result<KeyCommand, Ending> {
        KeyCommand::check(KeyOptions::grammar().parse(words.iter().copied())?)
    }

    #[test]
    fn actions_take_their_letters_from_the_shared_options() {
        let options = check(&["-a", "web*", "-y"])
            .map_err(|e| e.stderr)
            .unwrap()
            .options;
        assert_eq!(options.accept.as_deref(), Some("web*"));
        assert_eq!((options.yes, options.eauth.eauth), (Some(true), None));
        let options = check(&["-l", "acc"]).map_err(|e| e.stderr).unwrap().options;
        assert_eq!(options.list.as_deref(), Some("acc"));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for words in [
            &["-l", "some"][..],
            &["--keysize", "1024"],
            &["--keysize=99999"],
            &["--eauth"],
        ] {
            let code = check(words).map(|_| ()).unwrap_err().code;
            assert_eq!(code, 64, "{words:?}");
        }
    }

    #[test]
    fn switches_with_a_text_are_true_or_false() {
        let command = check(&["--rotate-aes-key", "FALSE", "--preserve-minions=true"]);
        let command = command.map_err(|e| e.stderr).unwrap();
        assert!(!command.rotates_aes_key());
        assert!(command.preserves_minions());
        let command = check(&[]).map_err(|e| e.stderr).unwrap();
        assert!(command.rotates_aes_key() && !command.preserves_minions());
    }
}
