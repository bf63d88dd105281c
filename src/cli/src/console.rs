//! Output of a command: outputter, colour and file, chosen as stock's `salt.output` chooses them.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use saltern_base::stdio::{complain, say, try_say};
use saltern_config::MasterConfig;
use saltern_config::yaml::{self, Limits, Node};
use saltern_model::Compat;
use saltern_output::{
    Colors, Indent, OutputOptions as Rendering, Outputter, UnknownOutputter, render, render_return,
};
use saltern_requests::yaml_value;
use saltern_wire::msgpack::Value;

use crate::options::{Ending, OutputOptions};
use crate::state_options::state_options;
use crate::table_options::table_options;

/// Outputters that 3008 does not have any more.
const DROPPED: [Outputter; 5] = [
    Outputter::Quiet,
    Outputter::NewlineValuesOnly,
    Outputter::OverstateStage,
    Outputter::VirtQuery,
    Outputter::Profile,
];

/// A value to print, with what decides how.
pub(crate) struct Shown {
    /// The minion that it is headed by; a value without one is printed as it is.
    pub(crate) id: Option<String>,
    /// The value.
    pub(crate) value: Value,
    /// The outputter it asks for.
    pub(crate) out: Option<String>,
    /// The return code of the function.
    pub(crate) retcode: i64,
    /// Since the job was published.
    pub(crate) elapsed: Option<Duration>,
}

/// Prints values for one command.
pub(crate) struct Console {
    /// `--out`, or the option `output` of the configuration.
    outputter: Option<String>,
    rendering: Rendering,
    file: Option<PathBuf>,
    compat: Compat,
}

impl Console {
    /// Reads the options; empties the output file unless it is appended to.
    ///
    /// # Errors
    /// The output file cannot be written.
    pub(crate) fn open(options: &OutputOptions, config: &MasterConfig) -> Result<Self, Ending> {
        let mut rendering = Rendering::new(false);
        rendering.colors = colors(options, config);
        rendering.table = table_options(config);
        if config
            .command_default("strip_colors")
            .is_some_and(|node| !node.is_truthy())
        {
            rendering.strip_colors = false;
        }
        rendering.indent = match (options.indent, config.is_written("output_indent")) {
            (Some(indent), _) => Indent::Spaces(indent),
            (None, true) => config
                .command_default("output_indent")
                .map_or(Indent::Unset, |node| Indent::from_value(&yaml_value(node))),
            (None, false) => Indent::Unset,
        };
        rendering.state = state_options(options, config);
        let file = options.file.as_deref().filter(|name| !name.is_empty());
        let file = file.map(PathBuf::from);
        if let Some(path) = file.as_ref().filter(|path| path.is_file())
            && options.file_append != Some(true)
        {
            let emptied = OpenOptions::new().write(true).truncate(true).open(path);
            emptied.map_err(|error| {
                let text = format!("{}: Access denied: {error}\n", path.display());
                Ending::failed(64, text)
            })?;
        }
        Ok(Self {
            outputter: options.output.clone(),
            rendering,
            file,
            compat: config.salt_compat,
        })
    }

    /// The outputter of a value that asks for this one, or for none; nested where there is none of
    /// the name.
    pub(crate) fn outputter(&self, asked: Option<&str>) -> Outputter {
        self.choose(asked).unwrap_or_default()
    }

    /// Whether a value that asks for no outputter is printed by this one.
    pub(crate) fn prints_by(&self, outputter: Outputter) -> bool {
        self.choose(None).is_ok_and(|chosen| chosen == outputter)
    }

    fn choose(&self, asked: Option<&str>) -> Result<Outputter, UnknownOutputter> {
        let outputter = Outputter::choose(self.outputter.as_deref(), asked)?;
        match self.compat {
            Compat::V3008 if DROPPED.contains(&outputter) => {
                Err(UnknownOutputter(outputter.name().to_owned()))
            }
            _ => Ok(outputter),
        }
    }

    /// Prints a value by the outputter it asks for, unless the user chose another.
    ///
    /// # Errors
    /// The output file cannot be written.
    pub(crate) fn display(&self, value: &Value, asked: Option<&str>) -> io::Result<()> {
        let outputter = self.choose(asked).unwrap_or_else(|unknown| {
            complain(&format!("[ERROR   ] {unknown}"));
            Outputter::default()
        });
        self.write(&self.printed(value, outputter))
    }

    /// A value as it is printed, with the end of its last line; empty where nothing is printed.
    pub(crate) fn printed(&self, value: &Value, outputter: Outputter) -> String {
        let mut text = render(value, outputter, &self.rendering);
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    /// Prints one minion's return by the outputter it asks for, unless the user chose another.
    ///
    /// # Errors
    /// The output file cannot be written, or nobody reads any more.
    pub(crate) fn display_return(&self, shown: Shown) -> io::Result<()> {
        let outputter = self.choose(shown.out.as_deref()).unwrap_or_else(|unknown| {
            complain(&format!("[ERROR   ] {unknown}"));
            Outputter::default()
        });
        let mut rendering = self.rendering.with_retcode(shown.retcode);
        rendering.elapsed = shown.elapsed;
        let mut text = match shown.id {
            Some(id) => render_return(&id, shown.value, outputter, &rendering),
            None => render(&shown.value, outputter, &rendering),
        };
        if text.is_empty() {
            return Ok(());
        }
        text.push('\n');
        self.write_part(&text)
    }

    /// Writes a part of the output, after which more may come.
    ///
    /// # Errors
    /// The output file cannot be written, or nobody reads any more.
    pub(crate) fn write_part(&self, text: &str) -> io::Result<()> {
        match &self.file {
            None => try_say(text),
            Some(_) => self.write(text),
        }
    }

    /// Writes text to the output file, or to standard output.
    ///
    /// # Errors
    /// The output file cannot be written.
    pub(crate) fn write(&self, text: &str) -> io::Result<()> {
        match &self.file {
            None => {
                say(text);
                Ok(())
            }
            Some(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
                written.map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })
            }
        }
    }

    /// How values are rendered.
    pub(crate) const fn rendering(&self) -> &Rendering {
        &self.rendering
    }

    /// The same, to be changed.
    pub(crate) const fn rendering_mut(&mut self) -> &mut Rendering {
        &mut self.rendering
    }

    /// Whether the user chose an outputter.
    pub(crate) const fn has_outputter(&self) -> bool {
        self.outputter.is_some()
    }
}

/// The codes of the colours: stock's, with those of the file that `color_theme` names; with a name as
/// `color` all are the one of that name.
fn colors(options: &OutputOptions, config: &MasterConfig) -> Colors {
    let colors = Colors::new(is_colored(options, config));
    let text = |name: &str| config.command_default(name).and_then(Node::as_str);
    let Some(theme) = text("color_theme").filter(|path| !path.is_empty()) else {
        return only(colors, options, text("color"));
    };
    let read = std::fs::read(theme).map_err(|error| error.to_string());
    let read = read.and_then(|bytes| {
        yaml::parse_bytes(&bytes, theme, &Limits::DEFAULT).map_err(|error| error.to_string())
    });
    match read {
        Ok(node) => only(
            colors.with_theme(&yaml_value(&node)),
            options,
            text("color"),
        ),
        Err(error) => {
            complain(&format!(
                "[WARNING ] Failed to read the color theme {theme}: {error}"
            ));
            only(colors, options, text("color"))
        }
    }
}

/// `--force-color` means all colours.
fn only(colors: Colors, options: &OutputOptions, name: Option<&str>) -> Colors {
    match name.filter(|_| options.force_color != Some(true)) {
        Some(name) => colors.only(name),
        None => colors,
    }
}

/// Colour as stock decides on it: the options, then `color` of the configuration, then whether a
/// person reads. `NO_COLOR` counts where a person reads.
fn is_colored(options: &OutputOptions, config: &MasterConfig) -> bool {
    if options.force_color == Some(true) {
        return true;
    }
    if options.no_color == Some(true) {
        return false;
    }
    let configured = config
        .is_written("color")
        .then(|| config.command_default("color"))
        .flatten();
    if let Some(color) = configured.map(Node::is_truthy) {
        return color;
    }
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|text| !text.is_empty());
    io::stdout().is_terminal() && !is_refused
}
