//! `salt-key`: the keys of minions, in their files or by asking the master.
//!
//! Stock's command works on the files whether or not a master runs, and so does this one: a running
//! master notices each change with the next message of the minion. With external authentication the
//! master is asked instead, through its wheel functions. `saltern key` is the same under other words.

mod action;
mod caches;
mod change;
mod details;
mod error;
mod files;
mod generate;
mod master;
mod rotate_master;

use std::io::{self, BufRead};
use std::process::ExitCode;

use saltern_client::{ClientConfig, LocalClient};
use saltern_config::MasterConfig;
use saltern_crypto::HashType;
use saltern_model::{Compat, KeyState};
use saltern_output::{Outputter, key_lists};
use saltern_runners::KeyLists;
use saltern_wire::msgpack::Value;
use tokio::runtime;

use crate::account::{self, AccountError};
use crate::console::{Console, complain, say};
use crate::interrupt;
use crate::login;
use crate::options::{CommandOptions, EauthOptions, Ending, KeyCommand, KeyOptions, Parsed, read};
use crate::settings;
use action::{Action, Change};
use change::{KeyChanges, sources};
use details::Details;
use error::KeyError;
use files::KeyFiles;
use master::MasterKeys;
pub use rotate_master::{RotationStep, rotate_master};

/// The outputter of keys.
const OUTPUTTER: Option<&str> = Some("key");

/// Runs `salt-key` with a command line, without the name of the program.
pub fn main(words: Vec<String>) -> ExitCode {
    run(words).unwrap_or_else(|ending| ending.finish())
}

/// The ids of the minions with an accepted key, by the files of a master that need not run.
///
/// # Errors
/// The directory of keys cannot be read.
pub(crate) fn accepted(config: &MasterConfig) -> Result<Vec<String>, Ending> {
    let listed = KeyFiles::of(config).list(KeyState::Accepted);
    let listed = listed.map_err(|error| Ending::failed(1, format!("{error}\n")))?;
    Ok(listed.unwrap_or_default())
}

fn run(words: Vec<String>) -> Result<ExitCode, Ending> {
    let parsed = read::<KeyOptions>(words, io::stdin().lock())?;
    let command = KeyCommand::check(parsed)?;
    let config = settings::load(&command.options.config)?;
    execute(&config, command, ExitCode::SUCCESS)
}

/// `saltern key`: the same, with an exit code that says whether it could be done.
#[must_use]
pub fn manage(config: &MasterConfig, options: KeyOptions) -> ExitCode {
    let parsed = Parsed {
        options,
        arguments: Vec::new(),
    };
    KeyCommand::check(parsed)
        .and_then(|command| execute(config, command, ExitCode::FAILURE))
        .unwrap_or_else(|ending| ending.finish())
}

/// `failed` is the exit code where a key cannot be worked on: in stock 0, whatever went wrong.
fn execute(
    config: &MasterConfig,
    mut command: KeyCommand,
    failed: ExitCode,
) -> Result<ExitCode, Ending> {
    KeyOptions::grammar().fill(&mut command.options, |name| config.command_default(name));
    let console = Console::open(&command.options.output, config)?;
    let user = command.options.user.as_deref().unwrap_or(&config.user);
    match account::become_user(user) {
        Ok(()) => {}
        // As in stock, where nothing is done then, and nothing but this is wrong.
        Err(error @ AccountError::NotRoot { .. }) => {
            complain(&format!("[CRITICAL] {error}"));
            return Ok(failed);
        }
        Err(error) => return Err(Ending::failed(error.code(), format!("{error}\n"))),
    }
    let master = master_keys(config, &command.options.eauth)?;
    let tool = KeyTool {
        files: KeyFiles::of(config),
        master,
        config,
        command: &command,
        console: &console,
    };
    if let Err(error) = tool.run() {
        complain(&format!("Error: {error}"));
        return Ok(failed);
    }
    Ok(ExitCode::SUCCESS)
}

/// The master to ask, with external authentication.
fn master_keys(
    config: &MasterConfig,
    options: &EauthOptions,
) -> Result<Option<MasterKeys>, Ending> {
    let Some(credentials) = login::ask(options)? else {
        return Ok(None);
    };
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Ending::failed(1, format!("{error}\n")))?;
    let client = LocalClient::new(ClientConfig::from(config));
    let credentials = login::with_token(credentials, options, config, &client);
    let credentials = runtime.block_on(credentials)?;
    Ok(Some(MasterKeys {
        client,
        credentials,
        runtime,
    }))
}

struct KeyTool<'a> {
    /// Asked in place of the files.
    master: Option<MasterKeys>,
    config: &'a MasterConfig,
    command: &'a KeyCommand,
    console: &'a Console,
    files: KeyFiles,
}

impl KeyTool<'_> {
    fn run(&self) -> Result<(), KeyError> {
        let options = &self.command.options;
        if options.delete_all == Some(true) && !self.command.arguments.is_empty() {
            return Err(KeyError::DeleteAllWithArguments);
        }
        if options.by_fingerprint == Some(true) && self.master.is_some() {
            return Err(KeyError::FingerprintOverNetwork);
        }
        if options.details == Some(true) && self.master.is_some() {
            return Err(KeyError::DetailsOverNetwork);
        }
        match Action::of(options) {
            Action::List(kind) if options.details == Some(true) => {
                self.display_details(&self.list(&kind)?)
            }
            Action::List(kind) => self.display_lists(&self.list(&kind)?),
            Action::GenerateKeys(_) | Action::GenerateSignature if self.master.is_some() => {
                Err(KeyError::NotOverNetwork)
            }
            Action::Print(pattern) => {
                if let Some(master) = &self.master {
                    return self.display_each(master.shown("print", &pattern)?);
                }
                let lists = self.selected(self.files.managed()?, &pattern)?;
                let shown = each(&lists, |list, key| self.files.text(list, key))?;
                self.display_each(shown)
            }
            Action::Finger(pattern) => {
                if let Some(master) = &self.master {
                    return self.display_each(master.shown("finger", &pattern)?);
                }
                let lists = self.selected(self.files.all()?, &pattern)?;
                let hash_type = self.hash_type();
                let finger = |list: &str, key: &str| self.files.finger(list, key, hash_type);
                self.display_each(each(&lists, finger)?)
            }
            Action::Change(change, pattern) => self.change(change, &pattern),
            Action::GenerateKeys(name) => {
                let made = generate::keys(self.config, options, &self.files, &name)?;
                self.display(Value::map([("return", made)]))
            }
            Action::GenerateSignature => {
                let made = generate::signature(self.config, options, &self.files)?;
                self.display(Value::map([("return", made)]))
            }
        }
    }

    /// The keys of a kind (`Key.list_status`), by its first letters.
    fn list(&self, kind: &str) -> Result<KeyLists, KeyError> {
        if let Some(master) = &self.master {
            return master.list(kind);
        }
        let kinds = [
            ("acc", KeyState::Accepted),
            ("pre", KeyState::Pending),
            ("un", KeyState::Pending),
            ("rej", KeyState::Rejected),
            ("den", KeyState::Denied),
        ];
        let kind = kinds.iter().find(|(start, _)| kind.starts_with(start));
        let Some((_, state)) = kind else {
            return self.files.managed();
        };
        let name = state.directory();
        // 3006 and 3007 read only this one, and fail where it is missing.
        if self.files.compat() == Compat::V3008 {
            return Ok(self.files.managed()?.only(&[name]));
        }
        let keys = self.files.list(*state)?.ok_or_else(|| {
            KeyError::file(self.files.root().join(name), io::ErrorKind::NotFound.into())
        })?;
        Ok(KeyLists::new(vec![(name.to_owned(), keys)]))
    }

    /// The keys that a pattern selects, or with `--by-fingerprint` those with this fingerprint.
    fn selected(&self, lists: KeyLists, pattern: &str) -> Result<KeyLists, KeyError> {
        if self.command.options.by_fingerprint != Some(true) {
            return Ok(lists.matching(pattern));
        }
        let hash_type = self.hash_type();
        let mut selected = KeyLists::default();
        for (list, keys) in lists.iter() {
            let mut found = Vec::new();
            for key in keys {
                if self
                    .files
                    .finger(list, key, hash_type)?
                    .eq_ignore_ascii_case(pattern.trim())
                {
                    found.push(key.clone());
                }
            }
            selected.push(list, found);
        }
        Ok(selected.without_empty())
    }

    fn hash_type(&self) -> HashType {
        HashType::from_name(self.config.hash_type.name()).unwrap_or(HashType::Sha256)
    }

    /// Shows the keys that a change concerns, asks, and changes them.
    fn change(&self, change: Change, pattern: &str) -> Result<(), KeyError> {
        let matching = match &self.master {
            Some(master) => master.matching(pattern)?,
            None => self.selected(self.files.managed()?, pattern)?,
        };
        let chosen = match change {
            Change::Delete => matching,
            _ => matching.only(&sources(change, &self.command.options)),
        };
        if chosen.is_empty() {
            say(&self.no_match(change, pattern));
            return Ok(());
        }
        say(&format!(
            "The following keys are going to be {}:\n",
            change.done()
        ));
        self.display_lists(&chosen)?;
        if self.command.options.yes != Some(true) && !confirmed(change)? {
            return Ok(());
        }
        let changes = KeyChanges {
            config: self.config,
            files: &self.files,
            command: self.command,
        };
        let changed = match &self.master {
            Some(master) => master.apply(change, &chosen, &self.command.options)?,
            None => changes.apply(change, &chosen)?,
        };
        let mut text = String::new();
        for key in changed.iter().flat_map(|(_, keys)| keys) {
            text.push_str(&format!("Key for minion {key} {}.\n", change.done()));
        }
        say(&text);
        Ok(())
    }

    fn no_match(&self, change: Change, pattern: &str) -> String {
        let options = &self.command.options;
        let is_set = |option: Option<bool>| option == Some(true);
        let all = is_set(options.include_all);
        let (accepted, rejected) = match change {
            Change::Accept => (false, all || is_set(options.include_rejected)),
            Change::Reject => (all || is_set(options.include_accepted), false),
            Change::Delete => (
                is_set(options.include_accepted),
                is_set(options.include_rejected),
            ),
        };
        let mut states = vec!["unaccepted"];
        states.extend(accepted.then_some("accepted"));
        states.extend(rejected.then_some("rejected"));
        states.extend(is_set(options.include_denied).then_some("denied"));
        let states = match states.as_slice() {
            [one] => (*one).to_owned(),
            [first @ .., last] => format!("{} or {last}", first.join(", ")),
            [] => String::new(),
        };
        format!("The key glob '{pattern}' does not match any {states} keys.\n")
    }

    fn display_lists(&self, lists: &KeyLists) -> Result<(), KeyError> {
        if !self.is_rendered_here() {
            return self.display(lists.clone().into_value());
        }
        let lists = lists.iter().map(|(list, keys)| {
            let keys = keys.iter().map(|key| (key.as_str(), None));
            (list, keys.collect())
        });
        self.write(&key_lists(lists.collect(), self.console.rendering()))
    }

    /// Keys with their age, and what is known of their minions.
    fn display_details(&self, lists: &KeyLists) -> Result<(), KeyError> {
        let details = Details::of(self.config, &self.files, lists)?;
        match self.is_rendered_here() {
            true => self.write(&details.table(self.console.rendering())),
            false => self.display(details.into_value()),
        }
    }

    fn display_each(&self, lists: Vec<ShownKeys>) -> Result<(), KeyError> {
        if self.is_rendered_here() {
            let lists = lists.iter().map(|(list, keys)| {
                let keys = keys
                    .iter()
                    .map(|(key, text)| (key.as_str(), Some(text.as_str())));
                (list.as_str(), keys.collect())
            });
            return self.write(&key_lists(lists.collect(), self.console.rendering()));
        }
        let lists = lists.into_iter().map(|(list, keys)| {
            let keys = keys.into_iter();
            let keys = keys.map(|(key, text)| (Value::from(key), Value::from(text)));
            (Value::from(list), Value::Map(keys.collect()))
        });
        self.display(Value::Map(lists.collect()))
    }

    fn is_rendered_here(&self) -> bool {
        self.console.outputter(OUTPUTTER) == Outputter::Key
    }

    fn display(&self, value: Value) -> Result<(), KeyError> {
        // What is no list of keys, the outputter of stock cannot print, and nested stands in.
        let asked = value.get("return").is_none().then_some(OUTPUTTER).flatten();
        self.written(self.console.display(&value, asked))
    }

    fn write(&self, text: &str) -> Result<(), KeyError> {
        self.written(self.console.write(text))
    }

    fn written(&self, written: io::Result<()>) -> Result<(), KeyError> {
        let path = || self.command.options.output.file.clone().unwrap_or_default();
        written.map_err(|source| KeyError::file(path(), source))
    }
}

/// A list of keys, with what is shown of each.
type ShownKeys = (String, Vec<(String, String)>);

/// Applies `show` to each key.
fn each(
    lists: &KeyLists,
    show: impl Fn(&str, &str) -> Result<String, KeyError>,
) -> Result<Vec<ShownKeys>, KeyError> {
    let mut shown = Vec::new();
    for (list, keys) in lists.iter() {
        let mut entries: Vec<(String, String)> = Vec::with_capacity(keys.len());
        for key in keys {
            // A key that two patterns select is shown once.
            if entries.last().is_none_or(|(last, _)| last != key) {
                entries.push((key.clone(), show(list, key)?));
            }
        }
        shown.push((list.to_owned(), entries));
    }
    Ok(shown)
}

/// Asks on the terminal: deleting needs a yes, the others a no.
fn confirmed(change: Change) -> Result<bool, KeyError> {
    let (choice, default) = match change {
        Change::Delete => ("[N/y]", "n"),
        Change::Accept | Change::Reject => ("[n/Y]", "y"),
    };
    say(&format!("Proceed? {choice} "));
    interrupt::end_at_ctrl_c();
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    if read.map_err(|source| KeyError::file("standard input", source))? == 0 {
        return Err(KeyError::EndOfInput);
    }
    let answer = match line.trim_end_matches(['\r', '\n']) {
        "" => default,
        answer => answer,
    };
    Ok(answer.starts_with(['y', 'Y']))
}
