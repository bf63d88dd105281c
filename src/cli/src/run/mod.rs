//! `salt-run`: functions of the master. A running master runs them; without one they run here, on the
//! job database and by Python, as far as they need no master.

mod offline;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use saltern_client::{ClientConfig, ClientError, LocalClient, RunnerRequest, RunnerReturn};
use saltern_config::MasterConfig;
use saltern_output::{OutputOptions, Outputter, render};
use saltern_requests::typed_arguments;
use saltern_wire::msgpack::Value;
use tokio::runtime;

use crate::account;
use crate::console::{Console, complain, say};
use crate::login;
use crate::options::{CommandOptions, Ending, RunCommand, RunOptions, read};
use crate::settings;

/// Functions that only read the job database, so that they can be called twice.
const READING: [&str; 5] = [
    "jobs.last_run",
    "jobs.list_job",
    "jobs.list_jobs",
    "jobs.list_jobs_filter",
    "jobs.lookup_jid",
];

/// Exit code of a failure that stock prints as a sentence.
const FAILED: u8 = 1;

/// The runner whose return is the documentation of all of them.
const DOCUMENTATION: &str = "doc.runner";

/// Runs `salt-run` with a command line, without the name of the program.
pub fn main(words: Vec<String>) -> ExitCode {
    run(words).unwrap_or_else(|ending| ending.finish())
}

fn run(words: Vec<String>) -> Result<ExitCode, Ending> {
    let parsed = read::<RunOptions>(words, io::stdin().lock())?;
    let command = RunCommand::check(parsed)?;
    let config = settings::load(&command.options.config)?;
    execute(&config, command, Manner::Stock)
}

/// `saltern run`: the same, and standard output has nothing but what the function returned. Waits as
/// long as `wait`; without it however long it takes.
#[must_use]
pub fn call(config: &MasterConfig, command: RunCommand, wait: Option<Duration>) -> ExitCode {
    let manner = Manner::Own { wait };
    execute(config, command, manner).unwrap_or_else(|ending| ending.finish())
}

/// Command as which a function is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// As `salt-run`: what stock prints, where stock prints it.
    Stock,
    /// As `saltern run`.
    Own { wait: Option<Duration> },
}

fn execute(
    config: &MasterConfig,
    mut command: RunCommand,
    manner: Manner,
) -> Result<ExitCode, Ending> {
    RunOptions::grammar().fill(&mut command.options, |name| config.command_default(name));
    let console = Console::open(&command.options.output, config)?;
    if let Err(error) = account::become_user(&config.user) {
        return Err(Ending::failed(error.code(), format!("{error}\n")));
    }
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Ending::failed(FAILED, format!("{error}\n")))?;
    let mut client = LocalClient::new(ClientConfig::from(config));
    if let Some(credentials) = login::ask(&command.options.eauth)? {
        let logged_in = login::with_token(credentials, &command.options.eauth, config, &client);
        let credentials = runtime.block_on(logged_in)?;
        client = client.with_credentials(credentials);
    }
    let tool = RunTool {
        client,
        config,
        command: &command,
        console: &console,
        manner,
    };
    let code = runtime.block_on(async {
        tokio::select! {
            code = tool.run() => code,
            _ = tokio::signal::ctrl_c() => {
                match manner {
                    Manner::Stock => complain("\nExiting gracefully on Ctrl-c"),
                    Manner::Own { .. } => complain("\nthe function goes on in the master"),
                }
                Ok(FAILED)
            }
        }
    })?;
    Ok(ExitCode::from(code))
}

/// What became of a call.
enum Called {
    /// It returned this.
    Returned(RunnerReturn),
    /// What it returned is printed already.
    Printed,
}

struct RunTool<'a> {
    client: LocalClient,
    config: &'a MasterConfig,
    command: &'a RunCommand,
    console: &'a Console,
    manner: Manner,
}

impl RunTool<'_> {
    async fn run(&self) -> Result<u8, Ending> {
        let options = &self.command.options;
        if options.doc == Some(true) {
            return self.documentation().await;
        }
        let Some(function) = &self.command.function else {
            say(&RunOptions::grammar().help());
            return Ok(0);
        };
        let request = self.request(function);
        if options.is_async == Some(true) {
            let tag = self
                .client
                .call_async(&request)
                .await
                .map_err(|error| failed(&error))?;
            complain(&format!(
                "[WARNING ] Running in asynchronous mode. The result comes as an event with the tag \
                 {tag}/ret, and is kept in the job cache."
            ));
            return Ok(0);
        }
        let Called::Returned(returned) = self.call(&request).await? else {
            return Ok(0);
        };
        if options.quiet != Some(true) {
            self.show(function, &returned.value)?;
        }
        if is_trimmed(&returned.value) {
            complain(
                "[WARNING ] Parts are missing (VALUE_TRIMMED), because what is returned has more than \
                 max_event_size bytes: ask for less, with limit=NUMBER for instance.",
            );
        }
        // Stock's own process does not get as far as a return code then.
        if self.manner == Manner::Stock && unavailable(function, &returned.value).is_some() {
            return Ok(0);
        }
        // A process has eight bits for it, and so has stock's.
        Ok((returned.retcode & 0xff) as u8)
    }

    fn is_logged_in(&self) -> bool {
        let eauth = self.command.options.eauth.eauth.as_deref();
        eauth.is_some_and(|name| !name.is_empty())
    }

    /// By the running master, or here.
    async fn call(&self, request: &RunnerRequest) -> Result<Called, Ending> {
        let shows = self.command.options.quiet != Some(true);
        let mut notify = |suffix: &str, event: Value| {
            let shown = Value::map([("suffix", Value::from(suffix)), ("event", event)]);
            let asked = shown.get("event").and_then(|event| event.get("outputter"));
            let asked = asked.and_then(Value::as_str).map(str::to_owned);
            if let Manner::Own { .. } = self.manner {
                self.report_progress(&shown, asked.as_deref());
            } else if shows && let Err(error) = self.console.display(&shown, asked.as_deref()) {
                complain(&error.to_string());
            }
        };
        match self.client.call_and_notify(request, &mut notify).await {
            // Without a master nobody can say whether somebody else may.
            Err(ClientError::NotRunning(_)) if !self.is_logged_in() => {
                self.call_here(request, &mut notify)
            }
            // The bus takes no event beyond max_event_size; stock's process has no such bound.
            Ok(returned) if self.can_read_here(request, &returned.value) => {
                let here = self.call_here(request, &mut notify);
                here.or(Ok(Called::Returned(returned)))
            }
            called => called.map(Called::Returned).map_err(|error| failed(&error)),
        }
    }

    /// Runs a function in this process. A list of jobs is printed at once, as text that was made of it
    /// by pages: as values, many jobs take ten times the memory.
    fn call_here(
        &self,
        request: &RunnerRequest,
        notify: &mut dyn FnMut(&str, Value),
    ) -> Result<Called, Ending> {
        if !self.prints_pages(request) {
            return offline::call(self.config, request, notify).map(Called::Returned);
        }
        let print = |page: &Value| self.console.printed(page, Outputter::Nested);
        match offline::list_jobs(self.config, request, notify, print)? {
            Err(returned) => Ok(Called::Returned(returned)),
            Ok(pages) => {
                // The oldest jobs come first, as in one mapping.
                for page in pages.iter().rev() {
                    self.written(self.console.write(page))?;
                }
                Ok(Called::Printed)
            }
        }
    }

    /// Whether a call lists jobs, and the parts of its answer are printed as they would be together.
    fn prints_pages(&self, request: &RunnerRequest) -> bool {
        let asks_for_outputter = request
            .kwarg
            .iter()
            .any(|(name, _)| name.as_str() == Some("outputter"));
        request.fun == "jobs.list_jobs"
            && request.arg.is_empty()
            && !asks_for_outputter
            && self.command.options.quiet != Some(true)
            && self.console.prints_by(Outputter::Nested)
    }

    /// Whether a value that the bus trimmed can be had whole: by a function that only reads the job
    /// database, for a user of this machine.
    fn can_read_here(&self, request: &RunnerRequest, value: &Value) -> bool {
        is_trimmed(value) && READING.contains(&request.fun.as_str()) && !self.is_logged_in()
    }

    /// Prints an event of a call on standard error.
    fn report_progress(&self, shown: &Value, asked: Option<&str>) {
        if self.command.options.quiet != Some(true) {
            let outputter = Outputter::for_name(asked);
            complain(&render(shown, outputter, &OutputOptions::new(false)));
        }
    }

    /// Prints what a function returned, as `print_async_event` of stock does.
    fn show(&self, function: &str, value: &Value) -> Result<(), Ending> {
        let named = value.get("outputter").and_then(Value::as_str);
        let is_wrapped = value.as_map().is_some_and(|map| map.len() == 2);
        let data = value.get("data").filter(|_| is_wrapped && named.is_some());
        let is_stock = self.manner == Manner::Stock;
        let unavailable = unavailable(function, value).filter(|_| is_stock);
        let shown = unavailable.as_ref().or(data).unwrap_or(value);
        self.written(self.console.display(shown, named))
    }

    /// `-d`: the documentation of a function, a module, or everything.
    async fn documentation(&self) -> Result<u8, Ending> {
        let Called::Returned(returned) = self.call(&self.request(DOCUMENTATION)).await? else {
            return Ok(0);
        };
        let Some(all) = returned.value.as_map() else {
            return Err(Ending::failed(
                FAILED,
                format!("{}\n", text_of(&returned.value)),
            ));
        };
        let wanted = self.command.function.as_deref().unwrap_or_default();
        let mut found: Vec<(&str, &Value)> = all
            .iter()
            .filter_map(|(name, text)| Some((name.as_str()?, text)))
            .filter(|(name, _)| is_wanted(name, wanted))
            .collect();
        found.sort_unstable_by_key(|(name, _)| *name);
        for (name, text) in found {
            let heading = Value::from(format!("{name}:"));
            self.written(self.console.display(&heading, Some("txt")))?;
            say(&format!("{}\n", text_of(text)));
        }
        Ok(0)
    }

    fn request(&self, function: &str) -> RunnerRequest {
        let verbatim: Vec<&str> = self.command.no_parse.iter().map(String::as_str).collect();
        let words = self
            .command
            .arguments
            .iter()
            .map(|word| Value::from(word.as_str()));
        let mut arg = typed_arguments(words, &verbatim);
        let is_named =
            |value: &Value| value.get("__kwarg__").and_then(Value::as_bool) == Some(true);
        let mut kwarg = match arg.pop_if(|last| is_named(last)) {
            Some(Value::Map(named)) => named,
            _ => Vec::new(),
        };
        kwarg.retain(|(name, _)| name.as_str() != Some("__kwarg__"));
        RunnerRequest {
            fun: function.to_owned(),
            arg,
            kwarg,
            timeout: match self.manner {
                Manner::Stock => None,
                Manner::Own { wait } => wait,
            },
        }
    }

    fn written(&self, written: io::Result<()>) -> Result<(), Ending> {
        written.map_err(|error| Ending::failed(FAILED, format!("{error}\n")))
    }
}

/// As `salt.client.mixins.get_docs` picks them.
fn is_wanted(name: &str, wanted: &str) -> bool {
    match wanted.trim_end_matches('.') {
        "" => true,
        pattern if pattern.contains('*') => {
            saltern_python::fnmatch::Glob::new(pattern).matches(name)
        }
        module => {
            name == wanted
                || name
                    .strip_prefix(module)
                    .is_some_and(|rest| rest.starts_with('.'))
        }
    }
}

/// Stock's sentence about a function that there is none of: its own process says so, where the master
/// says that an exception occurred.
fn unavailable(function: &str, value: &Value) -> Option<Value> {
    let sentence = format!("'{function}' is not available.");
    let begin = format!("Exception occurred in runner {function}: {sentence}");
    value.as_str()?.starts_with(&begin).then(|| sentence.into())
}

/// Whether the event bus left something out (`salt/utils/dicttrim.py`).
fn is_trimmed(value: &Value) -> bool {
    match value {
        Value::Str(text) => text == "VALUE_TRIMMED",
        Value::Map(entries) => entries.iter().any(|(_, value)| is_trimmed(value)),
        _ => false,
    }
}

fn text_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| "None".to_owned(), str::to_owned)
}

fn failed(error: &ClientError) -> Ending {
    Ending::failed(FAILED, format!("{}\n", saltern_base::chain(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_is_picked_as_stock_picks_it() {
        for (name, wanted, is_picked) in [
            ("jobs.active", "", true),
            ("jobs.active", "jobs", true),
            ("jobs.active", "jobs.", true),
            ("jobs.active", "jobs.active", true),
            ("jobs.active", "jobs.act", false),
            ("jobs.active", "jobs.a*", true),
            ("jobsx.active", "jobs", false),
        ] {
            assert_eq!(is_wanted(name, wanted), is_picked, "{name} for {wanted:?}");
        }
    }

    #[test]
    fn missing_function_is_told_in_stocks_words() {
        let text = "Exception occurred in runner a.b: 'a.b' is not available. (no Python)";
        assert_eq!(
            unavailable("a.b", &text.into()),
            Some("'a.b' is not available.".into())
        );
        assert_eq!(
            unavailable("a.b", &"Exception occurred in runner a.b: x".into()),
            None
        );
    }
}
