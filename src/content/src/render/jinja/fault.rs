//! Errors of a running template, by the kind that Salt reports.

use minijinja::{Error, ErrorKind};

use crate::render::error::ErrorClass;

/// The result of everything a template does.
pub(crate) type Outcome<T> = Result<T, Fault>;

/// An error before it is attributed to a line of the template.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Something of ours refused.
    Raised(Raised),
    /// A macro failed; the engine's error knows the line inside.
    Engine(Box<Error>),
}

/// The class and the text of a failure.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Raised {
    pub(crate) class: ErrorClass,
    pub(crate) text: String,
    /// The template and the line, where the engine cannot know them.
    pub(crate) place: Option<(String, usize)>,
}

impl Fault {
    fn new(class: ErrorClass, text: impl Into<String>) -> Fault {
        let text = text.into();
        Fault::Raised(Raised {
            class,
            text,
            place: None,
        })
    }

    /// Error that stock reports as `Jinja variable …`.
    pub(crate) fn undefined(text: impl Into<String>) -> Fault {
        Fault::new(ErrorClass::Undefined, text)
    }

    /// Error that stock reports as `Jinja syntax error: …`, which includes errors while rendering.
    pub(crate) fn runtime(text: impl Into<String>) -> Fault {
        Fault::new(ErrorClass::Syntax, text)
    }

    /// Any other Python exception.
    pub(crate) fn other(text: impl Into<String>) -> Fault {
        Fault::new(ErrorClass::Other, text)
    }

    /// A Salt function that refused.
    pub(crate) fn function(text: impl Into<String>) -> Fault {
        Fault::new(ErrorClass::Function, text)
    }

    /// A bound was reached.
    pub(crate) fn limit(text: impl Into<String>) -> Fault {
        Fault::new(ErrorClass::Limit, text)
    }

    pub(crate) fn into_engine(self) -> Error {
        match self {
            Fault::Engine(error) => *error,
            Fault::Raised(raised) => {
                Error::new(ErrorKind::InvalidOperation, raised.text.clone()).with_source(raised)
            }
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Engine(Box::new(error))
    }
}
