//! Options that several commands share.

use std::collections::BTreeSet;
use std::path::PathBuf;

use zeroize::Zeroizing;

use super::definition::{Action, Group, OptionDefinition};

/// Directory of the configuration when neither option nor environment names one.
const CONFIG_DIR: &str = "/etc/salt";

/// The levels in the order in which stock lists them for the console.
pub(crate) const CONSOLE_LEVELS: &[&str] = &[
    "all", "debug", "error", "critical", "garbage", "info", "profile", "quiet", "trace", "warning",
];

/// The same for the log file.
const FILE_LEVELS: &[&str] = &[
    "all", "garbage", "trace", "debug", "profile", "info", "warning", "error", "critical", "quiet",
];

/// Gives the definitions of shared options their part of a command's struct.
macro_rules! shares {
    ($options:ty: $($field:ident: $part:ty),* $(,)?) => {
        $(impl AsMut<$part> for $options {
            fn as_mut(&mut self) -> &mut $part {
                &mut self.$field
            }
        })*
    };
}
pub(super) use shares;

/// A password of the command line; it has no `Debug` and is wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Keeps a password.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// Options for the directory of the configuration, and for the whole process.
#[derive(Debug, Clone, Default)]
pub struct ConfigOptions {
    /// `--saltfile`: a file with options (`SALT_SALTFILE`).
    pub saltfile: Option<String>,
    /// `-c`: the configuration directory (`SALT_CONFIG_DIR`).
    pub config_dir: Option<String>,
    /// `--hard-crash`; without effect here.
    pub hard_crash: Option<bool>,
    /// `--versions-report`.
    pub versions_report: Option<bool>,
}

impl ConfigOptions {
    /// The configuration directory: the option, the environment, or `/etc/salt`. A leading `~` is
    /// the home directory.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        let environment = std::env::var("SALT_CONFIG_DIR").ok();
        let environment = environment.filter(|text| !text.is_empty());
        let text = self.config_dir.clone().or(environment);
        let text = text.unwrap_or_else(|| CONFIG_DIR.to_owned());
        match (text.strip_prefix('~'), std::env::var_os("HOME")) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                PathBuf::from(home).join(rest.trim_start_matches('/'))
            }
            _ => PathBuf::from(text),
        }
    }
}

/// How results are printed.
#[derive(Debug, Clone, Default)]
pub struct OutputOptions {
    /// `--out`: the outputter.
    pub output: Option<String>,
    /// `--out-indent`.
    pub indent: Option<i64>,
    /// `--out-file`.
    pub file: Option<String>,
    /// `--out-file-append`.
    pub file_append: Option<bool>,
    /// `--no-color`.
    pub no_color: Option<bool>,
    /// `--force-color`.
    pub force_color: Option<bool>,
    /// `--state-output`.
    pub state_output: Option<String>,
    /// `--state-verbose`, as written.
    pub state_verbose: Option<String>,
}

/// Options of logging.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// `--log-level`: that of the console.
    pub level: Option<&'static str>,
    /// `--log-file`.
    pub file: Option<String>,
    /// `--log-file-level`.
    pub file_level: Option<&'static str>,
}

/// External authentication.
#[derive(Clone, Default)]
pub struct EauthOptions {
    /// `-a`: the backend.
    pub eauth: Option<String>,
    /// `-T`: make a token, and use one that was made.
    pub make_token: Option<bool>,
    /// `--username`.
    pub username: Option<String>,
    /// `--password`.
    pub password: Option<Password>,
}

/// How a target is read. The order is that of stock's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetType {
    /// `-H`; nothing on a master reads it.
    Hosts,
    /// `-E`.
    Pcre,
    /// `-L`.
    List,
    /// `-G`.
    Grain,
    /// `-P`.
    GrainPcre,
    /// `-N`.
    Nodegroup,
    /// `-R`.
    Range,
    /// `-C`.
    Compound,
    /// `-I`.
    Pillar,
    /// `-J`.
    PillarPcre,
    /// `-S`.
    IpCidr,
}

impl TargetType {
    /// The name on the wire (`tgt_type`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hosts => "list_hosts",
            Self::Pcre => "pcre",
            Self::List => "list",
            Self::Grain => "grain",
            Self::GrainPcre => "grain_pcre",
            Self::Nodegroup => "nodegroup",
            Self::Range => "range",
            Self::Compound => "compound",
            Self::Pillar => "pillar",
            Self::PillarPcre => "pillar_pcre",
            Self::IpCidr => "ipcidr",
        }
    }

    const fn long(self) -> &'static str {
        match self {
            Self::Hosts => "--hosts",
            Self::Pcre => "--pcre",
            Self::List => "--list",
            Self::Grain => "--grain",
            Self::GrainPcre => "--grain-pcre",
            Self::Nodegroup => "--nodegroup",
            Self::Range => "--range",
            Self::Compound => "--compound",
            Self::Pillar => "--pillar",
            Self::PillarPcre => "--pillar-pcre",
            Self::IpCidr => "--ipcidr",
        }
    }
}

/// How the target is read.
#[derive(Debug, Clone, Default)]
pub struct TargetOptions {
    /// Every way that was given; more than one is refused.
    pub chosen: BTreeSet<TargetType>,
    /// `--delimiter` of grains and pillar.
    pub delimiter: Option<String>,
}

impl TargetOptions {
    /// The one way, `None` for a glob.
    ///
    /// # Errors
    /// There is more than one.
    pub fn selected(&self) -> Result<Option<TargetType>, ExclusiveTargets> {
        let mut chosen = self.chosen.iter().copied();
        let first = chosen.next();
        if chosen.next().is_none() {
            return Ok(first);
        }
        let names = self.chosen.iter().map(|kind| kind.long());
        Err(ExclusiveTargets(names.collect()))
    }
}

/// More than one kind of target, by their options; the text is stock's.
#[derive(Debug, thiserror::Error)]
#[error("The options {} are mutually exclusive. Please only choose one of them", .0.join("/"))]
pub struct ExclusiveTargets(Vec<&'static str>);

/// `--version`, `-V`, `-h`, `--saltfile` and `-c`: they stand first in every help.
pub(super) fn leading<T: AsMut<ConfigOptions>>() -> Vec<OptionDefinition<T>> {
    let own = OptionDefinition::new;
    vec![
        own(
            "--version",
            "",
            Action::Version,
            "Print the version and exit.",
        ),
        own(
            "-V --versions-report",
            "versions_report",
            Action::Flag(|all: &mut T| &mut all.as_mut().versions_report, true),
            "Print the versions of all parts and exit.",
        ),
        own("-h --help", "", Action::Help, "Print this help and exit."),
        own(
            "--saltfile",
            "saltfile",
            Action::Text(|all: &mut T| &mut all.as_mut().saltfile),
            "File with values for these options; by default \"Saltfile\" in the current directory \
             or in ~/.salt.",
        ),
        own(
            "-c --config-dir",
            "config_dir",
            Action::Text(|all: &mut T| &mut all.as_mut().config_dir),
            "Configuration directory. Default: '/etc/salt'.",
        ),
    ]
}

pub(super) fn hard_crash<T: AsMut<ConfigOptions>>() -> OptionDefinition<T> {
    OptionDefinition::new(
        "--hard-crash",
        "hard_crash",
        Action::Flag(|all: &mut T| &mut all.as_mut().hard_crash, true),
        "Accepted for stock's sake; errors are always reported in full.",
    )
}

pub(super) fn output<T: AsMut<OutputOptions>>() -> Group<T> {
    let own = OptionDefinition::new;
    Group {
        title: "Output Options",
        description: "How results are printed.",
        options: vec![
            own(
                "--out --output",
                "output",
                Action::Text(|all: &mut T| &mut all.as_mut().output),
                "Outputter for the results, such as json, yaml or txt.",
            ),
            own(
                "--out-indent --output-indent",
                "output_indent",
                Action::Integer(|all: &mut T| &mut all.as_mut().indent),
                "Spaces an outputter indents by; a negative number puts everything on one line.",
            ),
            own(
                "--out-file --output-file",
                "output_file",
                Action::Text(|all: &mut T| &mut all.as_mut().file),
                "File that the results are written to.",
            ),
            own(
                "--out-file-append --output-file-append",
                "output_file_append",
                Action::Flag(|all: &mut T| &mut all.as_mut().file_append, true),
                "Append to that file.",
            ),
            own(
                "--no-color --no-colour",
                "no_color",
                Action::Flag(|all: &mut T| &mut all.as_mut().no_color, true),
                "Print without colours.",
            ),
            own(
                "--force-color --force-colour",
                "force_color",
                Action::Flag(|all: &mut T| &mut all.as_mut().force_color, true),
                "Print in colours, even into a pipe.",
            ),
            own(
                "--state-output --state_output",
                "state_output",
                Action::Text(|all: &mut T| &mut all.as_mut().state_output),
                "How states are printed: full, terse, mixed, changes or filter.",
            ),
            own(
                "--state-verbose --state_verbose",
                "state_verbose",
                Action::Text(|all: &mut T| &mut all.as_mut().state_verbose),
                "Whether states that changed nothing are printed: True or False.",
            ),
        ],
    }
}

/// The group "Logging Options"; the name of the log file's option differs for `salt-key`, which has
/// no `-l` either.
pub(super) fn logging<T: AsMut<LogOptions>>(
    level: &'static str,
    file: &'static str,
    default: &str,
) -> Group<T> {
    let own = OptionDefinition::new;
    Group {
        title: "Logging Options",
        description: "What is logged by this command.",
        options: vec![
            own(
                level,
                "log_level",
                Action::Choice(CONSOLE_LEVELS, |all: &mut T| &mut all.as_mut().level),
                "Level of the log on standard error: all, garbage, trace, debug, profile, info, \
                 warning, error, critical or quiet. Default: 'warning'.",
            ),
            own(
                "--log-file",
                file,
                Action::Text(|all: &mut T| &mut all.as_mut().file),
                &format!("Log file. Default: '{default}'."),
            )
            .metavar("LOG_FILE"),
            own(
                "--log-file-level",
                "log_level_logfile",
                Action::Choice(FILE_LEVELS, |all: &mut T| &mut all.as_mut().file_level),
                "Level of the log file. Default: 'warning'.",
            ),
        ],
    }
}

/// The group "External Authentication"; `salt-key` needs `-a` for something else.
pub(super) fn eauth<T: AsMut<EauthOptions>>(names: &'static str) -> Group<T> {
    let own = OptionDefinition::new;
    Group {
        title: "External Authentication",
        description: "",
        options: vec![
            own(
                names,
                "eauth",
                Action::Text(|all: &mut T| &mut all.as_mut().eauth),
                "Authenticate by this external system, such as pam; what it asks for is prompted for.",
            ),
            own(
                "-T --make-token",
                "mktoken",
                Action::Flag(|all: &mut T| &mut all.as_mut().make_token, true),
                "Authenticate by a token: keep one after an authentication, and use a kept one.",
            ),
            own(
                "--username",
                "username",
                Action::Text(|all: &mut T| &mut all.as_mut().username),
                "User name for external authentication.",
            ),
            own(
                "--password",
                "password",
                Action::Secret(|all: &mut T| &mut all.as_mut().password),
                "Password for external authentication; other users of the machine can see it.",
            ),
        ],
    }
}

/// The group "Target Options" with these ways, and the one with the delimiter.
pub(super) fn target<T: AsMut<TargetOptions>>(
    ways: &[(&'static str, TargetType, &str)],
) -> [Group<T>; 2] {
    let ways = ways.iter().map(|(names, kind, help)| {
        let dest = match kind {
            TargetType::Pillar => "pillar_target",
            kind => kind.name(),
        };
        OptionDefinition::new(names, dest, Action::Target(T::as_mut, *kind), help)
    });
    let delimiter = OptionDefinition::new(
        "--delimiter",
        "delimiter",
        Action::Text(|all: &mut T| &mut all.as_mut().delimiter),
        "What separates the levels of a grain or pillar. Default: ':'.",
    );
    [
        Group {
            title: "Target Options",
            description: "How the target is read; a shell glob without any of these.",
            options: ways.collect(),
        },
        Group {
            title: "Additional Target Options",
            description: "",
            options: vec![delimiter],
        },
    ]
}

/// The ways that `salt` and `salt-cp` share.
pub(super) const TARGET_WAYS: &[(&str, TargetType, &str)] = &[
    (
        "-H --hosts",
        TargetType::Hosts,
        "All hosts of the rosters (salt-ssh only).",
    ),
    (
        "-E --pcre",
        TargetType::Pcre,
        "The target is a regular expression.",
    ),
    (
        "-L --list",
        TargetType::List,
        "The target is a list of minion ids, separated by commas or white space.",
    ),
    (
        "-G --grain",
        TargetType::Grain,
        "The target is a grain and a glob, such as \"os:Arch*\".",
    ),
    (
        "-P --grain-pcre",
        TargetType::GrainPcre,
        "The target is a grain and a regular expression, such as \"os:Arch.*\".",
    ),
    (
        "-N --nodegroup",
        TargetType::Nodegroup,
        "The target is the name of a node group.",
    ),
    (
        "-R --range",
        TargetType::Range,
        "The target is a range expression, such as %cluster.",
    ),
];

/// Further kinds of targets, which only `salt` has.
pub(super) const MORE_TARGET_WAYS: &[(&str, TargetType, &str)] = &[
    (
        "-C --compound",
        TargetType::Compound,
        "The target combines several kinds, such as 'G@os:RedHat and webser* or E@database.*'.",
    ),
    (
        "-I --pillar",
        TargetType::Pillar,
        "The target is a pillar key and a glob, such as \"role:production*\".",
    ),
    (
        "-J --pillar-pcre",
        TargetType::PillarPcre,
        "The target is a pillar key and a regular expression, such as \"role:prod.*\".",
    ),
    (
        "-S --ipcidr",
        TargetType::IpCidr,
        "The target is an address or a subnet, such as 10.0.0.0/24.",
    ),
];

/// `--no-parse` as a list of names.
pub(super) fn names(text: Option<&str>) -> Vec<String> {
    let environment = std::env::var("SALT_NO_PARSE").ok();
    let text = text.or(environment.as_deref()).unwrap_or_default();
    let names = text.split(',').filter(|_| !text.is_empty());
    names
        .map(|name| saltern_python::text::strip(name).to_owned())
        .collect()
}
