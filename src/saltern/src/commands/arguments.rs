//! Arguments that several commands share: where the configuration is, how results are printed, who
//! asks.

use saltern_cli::options::{EauthOptions, OutputOptions, TargetOptions, TargetType};

use crate::ConfigArgument;

/// Arguments of the commands that print results and that users may log in for.
#[derive(clap::Args)]
pub(crate) struct CommonArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    #[command(flatten)]
    pub(crate) print: PrintArguments,
    #[command(flatten)]
    pub(crate) login: LoginArguments,
}

/// How results are printed.
#[derive(clap::Args)]
pub(crate) struct PrintArguments {
    /// Print by this outputter, such as nested, json, yaml or txt.
    #[arg(long, value_name = "OUTPUTTER")]
    out: Option<String>,
    /// Print without colours.
    #[arg(long)]
    no_color: bool,
}

impl PrintArguments {
    /// As the options of stock's commands.
    pub(crate) fn options(&self) -> OutputOptions {
        OutputOptions {
            output: self.out.clone(),
            no_color: self.no_color.then_some(true),
            ..OutputOptions::default()
        }
    }
}

/// External authentication.
#[derive(clap::Args)]
pub(crate) struct LoginArguments {
    /// Log in by this backend of external_auth, such as pam; asks for what else is needed.
    #[arg(short = 'a', long, value_name = "BACKEND", help_heading = "Log-in")]
    eauth: Option<String>,
    /// The user to log in as.
    #[arg(long, value_name = "NAME", requires = "eauth", help_heading = "Log-in")]
    username: Option<String>,
}

impl LoginArguments {
    /// As the options of stock's commands. A password is asked for: on a command line everybody on the
    /// machine could read it.
    pub(crate) fn options(&self) -> EauthOptions {
        EauthOptions {
            eauth: self.eauth.clone(),
            username: self.username.clone(),
            ..EauthOptions::default()
        }
    }
}

/// How a target is read; a wildcard without any of these.
#[derive(clap::Args)]
#[group(id = "kind", multiple = false)]
pub(crate) struct TargetKinds {
    /// Read the target as a regular expression.
    #[arg(short = 'E', long, help_heading = "Target")]
    pcre: bool,
    /// Read the target as a list of ids, separated by commas.
    #[arg(short = 'L', long, help_heading = "Target")]
    list: bool,
    /// Read the target as a grain and a wildcard, such as os:Deb*.
    #[arg(short = 'G', long, help_heading = "Target")]
    grain: bool,
    /// Read the target as a grain and a regular expression.
    #[arg(short = 'P', long, help_heading = "Target")]
    grain_pcre: bool,
    /// Read the target as a pillar key and a wildcard, such as role:web*.
    #[arg(short = 'I', long, help_heading = "Target")]
    pillar: bool,
    /// Read the target as a pillar key and a regular expression.
    #[arg(short = 'J', long, help_heading = "Target")]
    pillar_pcre: bool,
    /// Read the target as the name of a node group.
    #[arg(short = 'N', long, help_heading = "Target")]
    nodegroup: bool,
    /// Read the target as a range expression, such as %cluster.
    #[arg(short = 'R', long, help_heading = "Target")]
    range: bool,
    /// Read the target as a compound expression, such as 'G@os:Debian and web*'.
    #[arg(short = 'C', long, help_heading = "Target")]
    compound: bool,
    /// Read the target as an address or a subnet, such as 10.0.0.0/24.
    #[arg(short = 'S', long, help_heading = "Target")]
    ipcidr: bool,
}

impl TargetKinds {
    /// The chosen one.
    pub(crate) fn selected(&self) -> Option<TargetType> {
        let kinds = [
            (self.pcre, TargetType::Pcre),
            (self.list, TargetType::List),
            (self.grain, TargetType::Grain),
            (self.grain_pcre, TargetType::GrainPcre),
            (self.pillar, TargetType::Pillar),
            (self.pillar_pcre, TargetType::PillarPcre),
            (self.nodegroup, TargetType::Nodegroup),
            (self.range, TargetType::Range),
            (self.compound, TargetType::Compound),
            (self.ipcidr, TargetType::IpCidr),
        ];
        let chosen = kinds.iter().find(|(is_chosen, _)| *is_chosen);
        chosen.map(|(_, kind)| *kind)
    }
}

/// How a target is read, and what separates the levels of grains and pillar in it.
#[derive(clap::Args)]
pub(crate) struct TargetArguments {
    #[command(flatten)]
    kind: TargetKinds,
    /// The separator of the levels of a grain or pillar.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = ":",
        help_heading = "Target"
    )]
    delimiter: String,
}

impl TargetArguments {
    /// As the options of stock's commands.
    pub(crate) fn options(&self) -> TargetOptions {
        TargetOptions {
            chosen: self.kind.selected().into_iter().collect(),
            delimiter: Some(self.delimiter.clone()),
        }
    }
}
