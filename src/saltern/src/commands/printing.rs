//! How results are printed: arguments that several commands share.

use saltern_cli::options::OutputOptions;

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
