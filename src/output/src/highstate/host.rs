//! The run of one host: its states, the errors that kept them from running, or what a function
//! returned there.

use saltern_python::node::{Node, sorted_by};
use saltern_python::{pprint, text};
use saltern_wire::msgpack::Value;

use super::compress::Named;
use super::tally::Tally;
use crate::decode::decoded;
use crate::{Color, OutputOptions};

/// The text of a host.
pub(super) struct Shown {
    pub(super) text: String,
    pub(super) has_changes: bool,
}

/// Report of one host while its states are formatted.
pub(super) struct Report<'a> {
    pub(super) options: &'a OutputOptions,
    /// See [`super::shown`].
    pub(super) level: usize,
    pub(super) lines: Vec<String>,
    /// The colour of the host's name.
    pub(super) color: Color,
    pub(super) tally: Tally,
}

/// Stock's text for what a state's return lacks.
const NO_ORDER: &str = "The State execution failed to record the order in which all states were \
                        executed. The state return missing data is:";

/// The host with its states, those of `named` if some were merged. Nothing where stock raises an
/// exception.
pub(super) fn shown(
    host: &Value,
    data: &mut Value,
    named: Option<&[Named]>,
    options: &OutputOptions,
    level: usize,
) -> Option<Shown> {
    let host = decoded(Node::read(host).ok()?)?.text();
    let mut report = Report {
        options,
        level,
        lines: Vec::new(),
        color: Color::Green,
        tally: Tally::default(),
    };
    match data {
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) => {
            report.returned([saltern_python::str(data).as_ref()]);
        }
        Value::Str(data) => report.returned(text::splitlines(data)),
        Value::Array(errors) => report.errors(errors)?,
        Value::Map(states) => {
            report.states(states, named)?;
            let summary = report.tally.lines(&host, options);
            report.lines.extend(summary);
        }
        _ => {}
    }
    let host = match options.strip_colors {
        true => host.replace('\x1b', "?"),
        false => host,
    };
    let heading = format!(
        "{}{host}:{}",
        options.colors.code(report.color),
        options.colors.end()
    );
    report.lines.insert(0, heading);
    Some(Shown {
        text: report.lines.join("\n"),
        has_changes: report.tally.changed > 0,
    })
}

impl Report<'_> {
    /// Adds the return of a function that an orchestration called; that counts as a change.
    fn returned<'t>(&mut self, lines: impl IntoIterator<Item = &'t str>) {
        for line in lines {
            let line = format!("    {line}");
            self.lines
                .push(self.options.colors.paint(Color::Green, &line));
        }
        self.tally.changed = 1;
        self.color = Color::Cyan;
    }

    fn errors(&mut self, errors: &[Value]) -> Option<()> {
        self.color = Color::LightRed;
        let (red, end) = (
            self.options.colors.code(self.color),
            self.options.colors.end(),
        );
        self.lines
            .push(format!("    {red}Data failed to compile:{end}"));
        for error in errors {
            let error = match self.options.strip_colors {
                true => {
                    let error = decoded(Node::read(error).ok()?)?;
                    error.text().replace('\x1b', "?")
                }
                false => saltern_python::str(error).into_owned(),
            };
            self.lines
                .push(format!("{red}----------\n    {error}{end}"));
        }
        Some(())
    }

    fn states(&mut self, states: &mut [(Value, Value)], named: Option<&[Named]>) -> Option<()> {
        let all: Vec<Named>;
        let named: &[Named] = match named {
            Some(named) => named,
            None => {
                let states = states.iter().enumerate();
                let named = states.map(|(at, (name, _))| Named {
                    name: name.clone(),
                    at,
                });
                all = named.collect();
                &all
            }
        };
        self.unordered(states, named)?;
        let mut order = Vec::new();
        for state in named {
            let (_, info) = states.get(state.at)?;
            if info.get("result").is_none() {
                continue;
            }
            let number = match info.get("__run_num__") {
                Some(number) => Node::read(number).ok()?,
                None => Node::Int(0),
            };
            order.push((number, state));
        }
        for (_, state) in sorted_by(&order, |(number, _)| number)? {
            let (_, info) = states.get_mut(state.at)?;
            self.state(&state.name, info)?;
        }
        Some(())
    }

    /// States that do not know when they ran, the last one first.
    fn unordered(&mut self, states: &[(Value, Value)], named: &[Named]) -> Option<()> {
        for state in named.iter().rev() {
            let (_, info) = states.get(state.at)?;
            let is_unordered = info.as_map().is_some_and(|info| !info.is_empty())
                && state.name.as_str() != Some("changes")
                && info.get("__run_num__").is_none();
            if is_unordered {
                self.lines.push(NO_ORDER.to_owned());
                let info = pprint::pformat(&Node::read(info).ok()?, 1);
                self.lines.push(info);
            }
        }
        Some(())
    }
}
