//! How a rendering fails, in the classes that stock Salt reports.

/// The kind of a failure. Stock puts a text of its own in front of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// A name, item or attribute that is not there was used.
    Undefined,
    /// The template cannot be parsed, or the template engine refused at run time.
    Syntax,
    /// A function of `salt` refused.
    Function,
    /// Any other exception, as for `1 + 'a'`.
    Other,
    /// The YAML, JSON or PGP text is wrong.
    Data,
    /// The renderer is unknown, needs Python, or is forbidden by the configuration.
    Renderer,
    /// A bound on time, output, loops or depth was reached.
    Limit,
}

/// A failed rendering.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}{}", prefix(*class), place(template, *line))]
pub struct RenderError {
    /// The kind of failure.
    pub class: ErrorClass,
    /// The reason.
    pub message: String,
    /// The template, as it is named in `include`.
    pub template: String,
    /// The line, from 1; 0 if it is not known.
    pub line: usize,
}

fn prefix(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Undefined => "Jinja variable ",
        ErrorClass::Syntax => "Jinja syntax error: ",
        ErrorClass::Function => "Problem running salt function in Jinja template: ",
        ErrorClass::Other => "Jinja error: ",
        ErrorClass::Data | ErrorClass::Renderer | ErrorClass::Limit => "",
    }
}

fn place(template: &str, line: usize) -> String {
    match (template, line) {
        ("", 0) => String::new(),
        ("", line) => format!("; line {line}"),
        (template, 0) => format!("; in \"{template}\""),
        (template, line) => format!("; line {line} of \"{template}\""),
    }
}

impl RenderError {
    /// An error without a line.
    pub fn new(class: ErrorClass, template: &str, message: impl Into<String>) -> RenderError {
        RenderError {
            class,
            message: message.into(),
            template: template.to_owned(),
            line: 0,
        }
    }

    /// The same error at a line.
    #[must_use]
    pub fn at(mut self, line: usize) -> RenderError {
        self.line = line;
        self
    }
}
