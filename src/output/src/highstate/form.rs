//! The two forms of a state: one line, or one line a field.

use saltern_python::node::Node;
use saltern_python::textwrap::Wrapper;
use saltern_python::{format, text};
use saltern_wire::msgpack::Value;

use super::changes::INDENT;
use crate::{Color, OutputOptions, Tabular, dict};

/// State of one line, for both forms.
pub(super) struct Form<'a> {
    pub(super) options: &'a OutputOptions,
    pub(super) color: Color,
    /// Module, id, name and function.
    pub(super) parts: &'a [&'a str],
}

impl Form<'_> {
    /// One line, in the form that `state_tabular` chooses.
    pub(super) fn line(&self, state: &Value) -> Option<String> {
        let template = self.template(state)?;
        let colors = &self.options.colors;
        let word = match state.get("result")? {
            Value::Bool(false) => "Failed",
            Value::Nil => "Differs",
            _ if state.get("changes")?.is_truthy() => "Changed",
            _ => "Clean",
        };
        let part = |at: usize| Some(Node::Text((*self.parts.get(at)?).to_owned()));
        let function = self.parts.last().map(|part| Node::Text((*part).to_owned()));
        let arguments = [
            colors.argument(self.color),
            part(2)?,
            part(0)?,
            function?,
            Node::Text(word.to_owned()),
            colors.argument(Color::End),
            Node::read(state).ok()?,
        ];
        format::format(&template, &arguments).ok()
    }

    /// The format of a line. Warnings are a part of it, with whatever braces they have.
    fn template(&self, state: &Value) -> Option<String> {
        let tabular = match &self.options.state.tabular {
            Tabular::Format(template) => return Some(template.clone()),
            tabular => *tabular == Tabular::Aligned,
        };
        let mut template = String::new();
        if let Some(warnings) = state.get("warnings") {
            let text = format!("Warnings:\n{}", dict::joined_lines(warnings)?);
            template += &self.options.colors.paint(Color::LightRed, &text);
            template += if tabular { "\n" } else { "" };
        }
        let is_timed = self.options.state.profile && state.get("start_time").is_some();
        let parts = match (tabular, is_timed) {
            (true, true) => [
                "{0}",
                "{6[start_time]!s} [{6[duration]!s:>7} ms] ",
                "{2:>10}.{3:<10} {4:7}   Name: {1}{5}",
            ],
            (true, false) => ["{0}", "", "{2:>10}.{3:<10} {4:7}   Name: {1}{5}"],
            (false, true) => [
                " {0} Name: {1} - Function: {2}.{3} - Result: {4}",
                " - Started: {6[start_time]!s} - Duration: {6[duration]!s} ms",
                "{5}",
            ],
            (false, false) => [
                " {0} Name: {1} - Function: {2}.{3} - Result: {4}",
                "",
                "{5}",
            ],
        };
        template.extend(parts);
        Some(template)
    }

    /// A line a field. Fills in what the state lacks, as stock does.
    pub(super) fn full(&self, state: &mut Value, changes: &str) -> Option<Vec<String>> {
        let [module, id, name, function] = *self.parts.first_chunk::<4>()?;
        let is_timed = self.options.state.profile && state.get("start_time").is_some();
        let comment = comment(state)?;
        for field in ["start_time", "duration"] {
            dict::set_default(state, field);
        }
        let duration = state.get("duration")?;
        if duration.as_str() != Some("") {
            let duration = format!("{} ms", saltern_python::str(duration));
            dict::set(state, "duration", Value::from(duration));
        }
        let field = |name| state.get(name).map(saltern_python::str);

        let mut lines = vec![self.options.colors.paint(self.color, "----------")];
        let mut add = |label: &str, text: &str| {
            let line = self
                .options
                .colors
                .paint(self.color, &format!("{label}{text}"));
            lines.push(format!("    {line}"));
        };
        add("      ID: ", id);
        add("Function: ", &format!("{module}.{function}"));
        if id != name {
            add("    Name: ", name);
        }
        add("  Result: ", &field("result")?);
        add(" Comment: ", &comment);
        if is_timed {
            add(" Started: ", &field("start_time")?);
            add("Duration: ", &field("duration")?);
        }
        let changes = format!("     Changes:   {changes}");
        lines.push(self.options.colors.paint(self.color, &changes));
        Some(lines)
    }

    /// The warnings of a state, in lines of eighty columns.
    pub(super) fn warnings(&self, warnings: &Value) -> Option<String> {
        let indent = " ".repeat(INDENT);
        let wrapper = Wrapper {
            width: 80,
            initial_indent: &indent,
            subsequent_indent: &indent,
        };
        let warnings = wrapper.fill(&dict::joined_lines(warnings)?);
        let warnings = format!(" Warnings: {}", text::lstrip(&warnings));
        let warnings = self.options.colors.paint(Color::LightRed, &warnings);
        Some(format!("   {warnings}"))
    }
}

/// The comment, with what the state's module has added in the field `data`.
fn comment(state: &mut Value) -> Option<String> {
    let comment = state.get("comment")?;
    if comment.as_str().is_none() {
        let comment = saltern_python::str(comment).into_owned();
        dict::set(state, "comment", Value::from(comment));
    }
    let comment = text::strip(state.get("comment")?.as_str()?);
    let mut comment = comment.replace('\n', &format!("\n{:INDENT$}", ""));
    match state.get("data") {
        None => {}
        Some(Value::Array(items)) => {
            for item in items {
                comment = format!("{comment} {}", saltern_python::str(item));
            }
        }
        Some(Value::Map(entries)) => {
            for (key, value) in entries {
                let (key, value) = (saltern_python::str(key), saltern_python::str(value));
                comment = format!("{comment}\n\t\t{key}: {value}");
            }
        }
        Some(data) => comment = format!("{comment} {}", saltern_python::str(data)),
    }
    Some(comment)
}
