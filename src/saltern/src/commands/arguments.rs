//! Arguments that several commands share: where the configuration is, how results are printed, who
//! asks.

use saltern_cli::options::{EauthOptions, OutputOptions};

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
