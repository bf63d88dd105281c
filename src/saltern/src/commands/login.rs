//! External authentication: arguments that several commands share.

use saltern_cli::options::EauthOptions;

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
