//! `salt`: runs functions on minions and prints what they return, each return as it comes.
//!
//! Suggested reading order: `request` (from the command line to the job), `follow` (one job, followed to
//! its end), then what is made of its answers: here, `documentation`, `batch`, `summary`.
//! Texts and exit codes are stock's; `DIFFERENCES.md` lists where not.

mod batch;
mod documentation;
mod follow;
mod refusal;
mod request;
mod summary;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::process::ExitCode;

use saltern_client::{BatchWishes, ClientConfig, ClientError, LocalClient, PublishRequest};
use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_output::{JsonDocument, NO_MINIONS_MATCHED, Outputter, render};
use saltern_requests::{matching_minions, yaml_value};
use saltern_wire::msgpack::Value;
use tokio::runtime;

use crate::console::{Console, Shown, complain, say, try_say};
use crate::key;
use crate::login;
use crate::options::{Call, CommandOptions, Ending, SaltCommand, SaltOptions, read};
use crate::page_url;
use crate::settings;
use crate::terminal::ProgressLine;
use follow::{Answer, End, Heading, Interrupts};
use summary::Summary;

/// Exit code of a failure.
const FAILED: u8 = 1;

/// Exit code where nothing was returned.
const NO_RETURN: u8 = 2;

/// Runs `salt` with a command line, without the name of the program.
pub fn main(words: Vec<String>) -> ExitCode {
    run(words).unwrap_or_else(|ending| ending.finish())
}

fn run(words: Vec<String>) -> Result<ExitCode, Ending> {
    let parsed = read::<SaltOptions>(words, io::stdin().lock())?;
    let command = SaltCommand::check(parsed)?;
    let config = settings::load(&command.options.config)?;
    if let Call::ConfigDump(help) = &command.call {
        return Ok(dump(help, &config));
    }
    execute(&config, command, Manner::Stock)
}

/// Reports why minions of a job are silent: given its jid and their ids.
pub type SilenceReport<'a> = &'a dyn Fn(&str, &BTreeSet<String>);

/// Options of `saltern cmd` that `salt` does not have.
pub struct OwnManner<'a> {
    /// A batch that the master drives.
    pub batch: Option<BatchWishes>,
    /// Called at the end of a job of which minions are silent.
    pub report: SilenceReport<'a>,
}

/// The command line whose exit codes and texts are used.
enum Manner<'a> {
    /// Stock's `salt`.
    Stock,
    /// `saltern cmd`: every failure has an exit code, and its text on standard error.
    Own(OwnManner<'a>),
}

impl Manner<'_> {
    const fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }
}

/// `saltern cmd`: publishes, follows and prints as `salt` does.
#[must_use]
pub fn call(config: &MasterConfig, command: SaltCommand, own: OwnManner<'_>) -> ExitCode {
    let ended = execute(config, command, Manner::Own(own));
    ended.unwrap_or_else(|ending| ending.finish())
}

fn execute(
    config: &MasterConfig,
    mut command: SaltCommand,
    manner: Manner<'_>,
) -> Result<ExitCode, Ending> {
    SaltOptions::grammar().fill(&mut command.options, |name| config.command_default(name));
    let mut console = Console::open(&command.options.output, config)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Ending::failed(FAILED, format!("{error}\n")))?;
    let mut reach = ClientConfig::from(config);
    if let Some(gather) = request::seconds(command.options.gather_job_timeout) {
        reach.gather_job_timeout = gather;
    }
    let client = runtime.block_on(logged_in(reach, &command, config))?;
    let asked = request::request(&command, config);
    if let Ok(request) = &asked {
        let state = &mut console.rendering_mut().state;
        state.diff |= command.options.output_diff == Some(true);
        state.apply_arguments(&request.arg);
    }
    let code = runtime.block_on(async {
        let interrupts = Interrupts::catch();
        let mut tool = SaltTool {
            client: &client,
            config,
            command: &command,
            console: &console,
            manner: &manner,
            interrupts: interrupts.map_err(|error| Ending::failed(FAILED, format!("{error}\n")))?,
            progress: ProgressLine::on_stderr(),
        };
        match asked {
            Ok(request) => tool.run(request).await,
            Err(error) => tool.refused(&ClientError::Publish(error.to_string())),
        }
    })?;
    Ok(ExitCode::from(code))
}

/// `--config-dump`: the configuration as YAML, without what is secret.
fn dump(help: &str, config: &MasterConfig) -> ExitCode {
    let mut options: Vec<(Value, Value)> = config
        .shown_values()
        .map(|(name, node)| (name.into(), yaml_value(node)))
        .collect();
    options.sort_by(|one, other| one.0.as_str().cmp(&other.0.as_str()));
    let plain = saltern_output::OutputOptions::new(false);
    let text = render(&Value::Map(options), Outputter::Yaml, &plain);
    say(&format!("{help}{text}\n"));
    ExitCode::SUCCESS
}

/// The client of the calling user, or of who logs in. As in stock a kept token counts before a new
/// log-in, and the key of the user before the token.
async fn logged_in(
    reach: ClientConfig,
    command: &SaltCommand,
    config: &MasterConfig,
) -> Result<LocalClient, Ending> {
    let client = LocalClient::new(reach);
    let eauth = &command.options.eauth;
    let credentials = match login::kept_token(config) {
        Some(_) if client.has_key() => return Ok(client),
        Some(token) => token,
        None => match login::ask(eauth)? {
            Some(asked) => login::with_token(asked, eauth, config, &client).await?,
            None => return Ok(client),
        },
    };
    Ok(client.with_credentials(credentials))
}

struct SaltTool<'a> {
    client: &'a LocalClient,
    config: &'a MasterConfig,
    command: &'a SaltCommand,
    console: &'a Console,
    manner: &'a Manner<'a>,
    interrupts: Interrupts,
    progress: ProgressLine,
}

impl SaltTool<'_> {
    async fn run(&mut self, mut request: PublishRequest) -> Result<u8, Ending> {
        if let Manner::Own(own) = self.manner {
            request.batch.clone_from(&own.batch);
            return match own.batch {
                Some(_) => self.own_batch(&request).await,
                None if self.command.options.is_async == Some(true) => {
                    self.without_waiting(&request).await
                }
                None => self.plain(&request).await,
            };
        }
        let options = &self.command.options;
        let size = options.batch.clone().filter(|size| !size.is_empty());
        if size.is_some() || options.is_static == Some(true) {
            return match size {
                Some(size) => self.batch(request, &size).await,
                None if self.is_one_document() => self.plain(&request).await,
                None => self.all_together(&request).await,
            };
        }
        if options.preview_target == Some(true) {
            return self.preview(&request);
        }
        let limit = options.batch_safe_limit.unwrap_or(0);
        let limit = usize::try_from(limit).unwrap_or(0);
        if limit > 1 && self.matching(&request)?.len() >= limit {
            say("\nNOTICE: Too many minions targeted, switching to batch execution.\n");
            let size = options.batch_safe_size.clone();
            return self.batch(request, size.as_deref().unwrap_or("8")).await;
        }
        if options.is_async == Some(true) {
            return self.without_waiting(&request).await;
        }
        if request.fun.as_str() == Some(request::DOCUMENTATION) {
            return self.documentation(&request).await;
        }
        match options.subset.and_then(|count| usize::try_from(count).ok()) {
            Some(count) if count > 0 => {
                let chosen = self.subset(&request, count).await;
                match chosen {
                    Ok(Ok(ids)) => self.plain(&to_list(request, ids)).await,
                    Ok(Err(code)) => Ok(code),
                    Err(error) => self.refused(&error),
                }
            }
            _ => self.plain(&request).await,
        }
    }

    /// `--one-document`: standard output holds one JSON object of all returns, and nothing else.
    fn is_one_document(&self) -> bool {
        self.command.options.one_document == Some(true)
    }

    /// Prints each return as it comes.
    async fn plain(&mut self, request: &PublishRequest) -> Result<u8, Ending> {
        let (console, options) = (self.console, &self.command.options);
        let is_progress = options.progress == Some(true);
        let mut document = self.is_one_document().then(JsonDocument::new);
        let mut summary = Summary::default();
        let mut silent = BTreeSet::new();
        let (mut is_failed, mut is_unwritten) = (false, false);
        let mut print = |answer: Answer| {
            is_failed |= answer.retcode != 0;
            summary.add(&answer);
            if answer.is_silent {
                silent.insert(answer.id.clone());
            }
            let written = match &mut document {
                _ if is_progress => Ok(()),
                None => console.display_return(shown(answer)),
                // The text that stands for a silent minion would read like a return.
                Some(_) if answer.is_silent => Ok(()),
                Some(document) => console.write_part(&document.entry(&answer.id, &answer.value)),
            };
            is_unwritten = written.is_err();
            written
        };
        let end = self.follow(request, self.heading(), &mut print).await;
        let is_begun = end.is_ok() && !is_unwritten;
        if let Some(document) = document.filter(|_| is_begun)
            && let Err(error) = console.write_part(document.end())
        {
            return Ok(follow::unwritten(&error));
        }
        let jid = match end {
            Ok(End::Over(jid)) => jid,
            Ok(End::NoMinions) => return self.nobody(),
            Ok(End::Left(code)) => return Ok(code),
            Err(error) => return self.refused(&error),
        };
        let is_wanted = options.summary == Some(true) && !console.has_outputter();
        if (is_wanted && !self.is_one_document()) || is_progress {
            let text = summary.text(options.verbose == Some(true));
            if let Err(error) = try_say(&text) {
                return Ok(follow::unwritten(&error));
            }
        }
        if !silent.is_empty() {
            self.report_silent(&jid, &silent);
        }
        if is_failed {
            complain("ERROR: Minions returned with non-zero exit code");
            return Ok(FAILED);
        }
        Ok(0)
    }

    /// Names the page of a job, of our own command.
    fn report_page(&self, jid: &str) {
        if self.manner.is_own() {
            page_url::report_job(self.config, jid);
        }
    }

    /// Stock prints a text in place of the return of a silent minion, and no reason.
    fn report_silent(&self, jid: &str, silent: &BTreeSet<String>) {
        match self.manner {
            Manner::Own(own) => (own.report)(jid, silent),
            Manner::Stock if self.is_one_document() => complain(&format!(
                "{} minions did not return; which, and why: saltern explain {jid}",
                silent.len()
            )),
            Manner::Stock => {}
        }
    }

    /// `-s`: all returns in one, after the last. Minions that did not return are not in it.
    async fn all_together(&mut self, request: &PublishRequest) -> Result<u8, Ending> {
        let mut all = Vec::new();
        let mut collect = |answer: Answer| {
            if !answer.is_silent {
                all.push((answer.id.into(), answer.value));
            }
            Ok(())
        };
        match self.follow(request, Heading::None, &mut collect).await {
            Ok(End::Over(_)) => self.collected(all),
            Ok(End::NoMinions) => self.nobody(),
            Ok(End::Left(code)) => Ok(code),
            Err(error) => self.failed(&error),
        }
    }

    /// Prints what was collected.
    fn collected(&self, all: Vec<(Value, Value)>) -> Result<u8, Ending> {
        if all.is_empty() {
            return self.nothing(&Value::Map(all));
        }
        let is_state = match &self.command.call {
            Call::One(function, _) => function.split('.').next() == Some("state"),
            _ => false,
        };
        let asked = is_state.then_some("highstate");
        self.written(self.console.display(&Value::Map(all), asked))?;
        Ok(0)
    }

    /// `--async`.
    async fn without_waiting(&mut self, request: &PublishRequest) -> Result<u8, Ending> {
        let client = self.client;
        let jid = match self.interrupts.answered(client.publish(request)).await {
            (None, _) => return Ok(FAILED),
            (Some(Ok(published)), _) => published.jid,
            (Some(Err(ClientError::NoMinions)), _) if self.manner.is_own() => {
                return self.nobody();
            }
            (Some(Err(ClientError::NoMinions)), _) => {
                say(&format!("{NO_MINIONS_MATCHED}\n"));
                "0".to_owned()
            }
            (Some(Err(error)), _) => return self.failed(&error),
        };
        say(&format!("Executed command with job ID: {jid}\n"));
        self.report_page(&jid);
        Ok(0)
    }

    /// `--subset`: so many of the minions that have the function, at random; the exit code where the
    /// command ends before.
    async fn subset(
        &mut self,
        request: &PublishRequest,
        count: usize,
    ) -> Result<Result<Vec<String>, u8>, ClientError> {
        let mut listing = request.clone();
        listing.fun = "sys.list_functions".into();
        listing.arg = Vec::new();
        listing.ret = String::new();
        let mut able = Vec::new();
        let end = self
            .follow(&listing, self.heading(), &mut |answer| {
                let functions = answer.value.as_array().unwrap_or_default();
                if functions.contains(&request.fun) {
                    able.push(answer.id);
                }
                Ok(())
            })
            .await?;
        match end {
            End::Left(code) => return Ok(Err(code)),
            End::NoMinions => say(&format!("{NO_MINIONS_MATCHED}\n")),
            End::Over(_) => {}
        }
        let chance = RandomState::new();
        able.sort_by_cached_key(|id| chance.hash_one(id));
        able.truncate(count);
        Ok(Ok(able))
    }

    /// `--preview-target`.
    fn preview(&self, request: &PublishRequest) -> Result<u8, Ending> {
        let ids = self.matching(request)?;
        let ids = Value::Array(ids.iter().map(|id| id.as_str().into()).collect());
        if ids.as_array().unwrap_or_default().is_empty() {
            return self.nothing(&ids);
        }
        self.written(self.console.display(&ids, None))?;
        Ok(0)
    }

    /// The minions that the target means, by the files of the master.
    fn matching(&self, request: &PublishRequest) -> Result<Vec<MinionId>, Ending> {
        let failed = |text: String| Ending::failed(FAILED, format!("{text}\n"));
        let accepted = key::accepted(self.config)?;
        let accepted = accepted.iter().filter_map(|id| MinionId::parse(id).ok());
        let delimiter = self.command.options.target.delimiter.as_deref();
        let ids = matching_minions(
            self.config,
            accepted.collect(),
            &request.tgt,
            &request.tgt_type,
            delimiter.unwrap_or(":"),
        );
        ids.map_err(|error| failed(error.to_string()))
    }

    fn heading(&self) -> Heading {
        let options = &self.command.options;
        match (options.verbose, options.show_jid) {
            _ if self.is_one_document() => Heading::None,
            (Some(true), _) => Heading::Verbose,
            (_, Some(true)) => Heading::Jid,
            _ => Heading::None,
        }
    }

    /// The target means nobody.
    fn nobody(&self) -> Result<u8, Ending> {
        if self.is_one_document() {
            complain(NO_MINIONS_MATCHED);
            return Ok(NO_RETURN);
        }
        if self.manner.is_own() {
            say(&format!("{NO_MINIONS_MATCHED}\n"));
            return Ok(NO_RETURN);
        }
        say(&format!("{NO_MINIONS_MATCHED}\n"));
        self.nothing(&Value::Map(Vec::new()))
    }

    /// Nothing was returned: stock shows that, too.
    fn nothing(&self, empty: &Value) -> Result<u8, Ending> {
        self.written(self.console.display(empty, None))?;
        complain("ERROR: No return received");
        Ok(NO_RETURN)
    }

    /// The job was not published: stock shows the sentence as if it were a return.
    fn refused(&self, error: &ClientError) -> Result<u8, Ending> {
        if self.manner.is_own() || self.is_one_document() {
            return self.failed(error);
        }
        let sentence = Value::from(refusal::sentence(error));
        self.written(self.console.display(&sentence, None))?;
        self.advise(error);
        Ok(0)
    }

    /// The same where stock ends with a traceback.
    fn failed(&self, error: &ClientError) -> Result<u8, Ending> {
        if self.manner.is_own() {
            complain(&format!("saltern: {}", saltern_base::chain(error)));
            return Ok(NO_RETURN);
        }
        complain(&refusal::sentence(error));
        self.advise(error);
        Ok(FAILED)
    }

    /// Prints advice on an error, where there is any.
    fn advise(&self, error: &ClientError) {
        let (advice, sentence) = (saltern_base::chain(error), refusal::sentence(error));
        if !advice.ends_with(&sentence) {
            complain(&advice);
        }
    }

    fn written(&self, written: io::Result<()>) -> Result<(), Ending> {
        written.map_err(|error| Ending::failed(FAILED, format!("{error}\n")))
    }
}

fn shown(answer: Answer) -> Shown {
    Shown {
        id: Some(answer.id),
        value: answer.value,
        out: answer.out,
        retcode: answer.retcode,
        elapsed: Some(answer.elapsed),
    }
}

/// The same job for these minions alone.
fn to_list(mut request: PublishRequest, ids: Vec<String>) -> PublishRequest {
    request.tgt = Value::Array(ids.into_iter().map(Value::from).collect());
    "list".clone_into(&mut request.tgt_type);
    request
}
