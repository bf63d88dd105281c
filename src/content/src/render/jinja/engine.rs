//! The template engine: its setup for the output of `translate.rs`, the state of one rendering, and
//! the meaning of its errors.

use std::io;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};

use super::compiled::Compiled;
use super::fault::{Fault, Raised};
use super::{PART, Run, helpers, translate};
use crate::render::error::{ErrorClass, RenderError};

/// An engine that reads the dialect and knows nothing else.
pub(super) fn empty() -> Result<Environment<'static>, Error> {
    let mut engine = Environment::empty();
    engine.set_syntax(
        SyntaxConfig::builder()
            .block_delimiters(translate::BLOCK.0, translate::BLOCK.1)
            .variable_delimiters(translate::PRINT.0, translate::PRINT.1)
            .comment_delimiters(translate::COMMENT.0, translate::COMMENT.1)
            .keep_trailing_newline(true)
            .build()?,
    );
    engine.set_undefined_behavior(UndefinedBehavior::Lenient);
    engine.set_auto_reload(false);
    Ok(engine)
}

/// An engine for one rendering, with the templates that are compiled already.
pub(super) fn of_run(compiled: &Compiled, run: &Arc<Run>) -> Environment<'static> {
    let mut engine = compiled.engine();
    engine.set_fuel(Some(run.limits.steps));
    engine.set_recursion_limit(run.limits.depth);
    let sources = run.clone();
    engine.set_loader(move |name| sources.source(name));
    let printer = run.clone();
    engine.set_formatter(move |out, _state, value| {
        let text = helpers::print(&printer, value).map_err(Fault::into_engine)?;
        out.write_str(&text).map_err(Error::from)
    });
    helpers::install(&mut engine, run);
    engine
}

/// The same engine without anything of the rendering, so that it can be kept.
pub(super) fn without_run(engine: &Environment<'static>) -> Environment<'static> {
    let mut engine = engine.clone();
    helpers::remove(&mut engine);
    engine.set_loader(|_| Ok(None::<String>));
    engine.set_formatter(|_, _, _| Ok(()));
    engine
}

/// The output of the main template, which ends when it is too long.
pub(super) struct Output<'a> {
    run: &'a Run,
    text: Vec<u8>,
}

impl<'a> Output<'a> {
    /// An empty output, for a template of so many bytes.
    pub(super) fn new(run: &'a Run, bytes: usize) -> Output<'a> {
        Output {
            run,
            text: Vec::with_capacity(bytes),
        }
    }

    /// The output.
    ///
    /// # Errors
    /// If it is no text.
    pub(super) fn text(self, name: &str) -> Result<String, RenderError> {
        String::from_utf8(self.text)
            .map_err(|_| RenderError::new(ErrorClass::Other, name, "the output is not text"))
    }
}

impl io::Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() as u64 + bytes.len() as u64 > self.run.limits.output {
            return Err(io::Error::other(self.run.too_long().into_engine()));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The engine's error in the terms of Salt.
pub(super) fn explain(error: Error, name: &str) -> RenderError {
    // The innermost error knows the most: includes wrap the error of what they include.
    let mut line = error.line();
    let mut template = error.name().map(str::to_owned);
    let mut message = error.detail().map(str::to_owned);
    let mut class = match error.kind() {
        ErrorKind::SyntaxError => ErrorClass::Syntax,
        ErrorKind::OutOfFuel => ErrorClass::Limit,
        _ => ErrorClass::Other,
    };
    if error.detail() == Some("recursion limit exceeded") {
        class = ErrorClass::Limit;
    }
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        if let Some(inner) = inner.downcast_ref::<Error>() {
            line = inner.line().or(line);
            template = inner.name().map(str::to_owned).or(template);
            message = inner.detail().map(str::to_owned).or(message);
            if inner.kind() == ErrorKind::OutOfFuel
                || inner.detail() == Some("recursion limit exceeded")
            {
                class = ErrorClass::Limit;
            }
        } else if let Some(raised) = inner.downcast_ref::<Raised>() {
            class = raised.class;
            message = Some(raised.text.clone());
            if let Some((place, at)) = &raised.place {
                template = Some(place.clone());
                line = Some(*at);
            }
        }
        cause = inner.source();
    }
    let template = template.map_or_else(
        || name.to_owned(),
        |template| {
            let end = template.find(PART).unwrap_or(template.len());
            template.get(..end).unwrap_or_default().to_owned()
        },
    );
    let message = message.unwrap_or_else(|| match error.kind() {
        ErrorKind::OutOfFuel => "the template takes too many steps".to_owned(),
        _ => error.to_string(),
    });
    RenderError::new(class, &template, message).at(line.unwrap_or(0))
}
