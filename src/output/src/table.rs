//! Stock's outputter `table` (`salt/output/table_out.py`): lists of rows as tables, wherever they
//! stand in a value.

use std::mem::discriminant;

use saltern_python::Node;
use saltern_python::node::{sorted_by, sorted_entries};
use saltern_python::text::{center, title};
use saltern_wire::msgpack::Value;

use crate::decode::decoded;
use crate::{Color, Justify, OutputOptions};

/// The tables of a value. Nothing is what it prints where stock raises an exception.
pub(crate) fn table(value: &Value, options: &OutputOptions) -> Option<String> {
    shown(&decoded(Node::read(value).ok()?)?, options)
}

/// The tables of a value without bytes.
pub(crate) fn shown(value: &Node, options: &OutputOptions) -> Option<String> {
    let mut display = Display {
        options,
        rows_key: options
            .table
            .rows_key
            .as_deref()
            .filter(|key| !key.is_empty()),
        labels_key: options.table.labels_key.as_deref(),
        lines: Vec::new(),
    };
    let indent = options.table.nested_indent;
    let heading = options.table.title.as_deref().unwrap_or_default();
    if !heading.is_empty() && display.rows_key.is_some() {
        // Stock passes the title where the colour belongs.
        let (white, end) = (options.colors.code(Color::White), options.colors.end());
        let line = format!("{:indent$}{heading}{white}{end}\n", "");
        display.lines.push(line);
    }
    display.value(value, indent)?;
    Some(display.lines.join("\n"))
}

struct Display<'a> {
    options: &'a OutputOptions,
    rows_key: Option<&'a str>,
    labels_key: Option<&'a str>,
    lines: Vec<String>,
}

impl Display<'_> {
    fn line(&mut self, indent: usize, color: Color, text: &str, suffix: &str) {
        let text = self.options.colors.paint(color, text);
        self.lines.push(format!("{:indent$}{text}{suffix}", ""));
    }

    fn value(&mut self, value: &Node, indent: usize) -> Option<()> {
        match value {
            Node::Sequence(_, rows) if self.rows_key.is_none() => self.rows(rows, None, indent),
            Node::Dict(entries) => self.dict(entries, indent),
            _ => Some(()),
        }
    }

    fn dict(&mut self, entries: &[(Node, Node)], indent: usize) -> Option<()> {
        let wanted = self.rows_key;
        let is_here = |key: &str| value_of(entries, key).is_some();
        let is_deeper = wanted.is_some_and(|key| !is_here(key));
        for (key, value) in sorted_entries(entries)? {
            if is_deeper {
                self.value(value, indent)?;
                continue;
            }
            if wanted.is_some_and(|wanted| *key != Node::Text(wanted.to_owned())) {
                continue;
            }
            if wanted.is_none() {
                self.line(indent, Color::DarkGray, &key.text(), ":");
                self.line(indent, Color::DarkGray, "----------", "");
            }
            match value {
                Node::Sequence(_, rows) => {
                    let labels = self.labels_key.filter(|key| !key.is_empty());
                    let labels = labels.and_then(|key| value_of(entries, key));
                    self.rows(rows, labels, indent)?;
                }
                _ => self.value(value, indent + 4)?,
            }
        }
        Some(())
    }

    /// A table, unless its rows are of several types.
    fn rows(&mut self, rows: &[Node], labels: Option<&Node>, indent: usize) -> Option<()> {
        let Some(first) = rows.first() else {
            return Some(());
        };
        let is_alike = |row: &Node| {
            discriminant(row) == discriminant(first) && row.type_name() == first.type_name()
        };
        if !rows.iter().all(is_alike) {
            return Some(());
        }
        let mut labels = match labels {
            Some(Node::Dict(entries)) => {
                let values = sorted_entries(entries)?.into_iter();
                let values = values.map(|(_, value)| value.clone()).collect();
                Some(list(values))
            }
            labels => labels.cloned(),
        };
        labels = labels.filter(is_truthy);
        let mut table = Vec::with_capacity(rows.len() + 1);
        for row in rows {
            table.push(match row {
                Node::Dict(entries) => {
                    let values = sorted_entries(entries)?.into_iter();
                    list(values.map(|(_, value)| Node::Text(value.text())).collect())
                }
                Node::Text(_) => list(vec![row.clone()]),
                _ => row.clone(),
            });
        }
        if let (None, Node::Dict(entries)) = (&labels, first) {
            let keys = sorted_entries(entries)?.into_iter();
            let names = keys.map(|(key, _)| Node::Text(title(&key.text().replace('_', " "))));
            labels = Some(list(names.collect())).filter(is_truthy);
        }
        let has_header = self.options.table.has_header && labels.is_some();
        if let Some(labels) = labels {
            table.insert(0, labels);
        }
        self.drawn(&table, indent + 4, has_header)
    }

    fn drawn(&mut self, rows: &[Node], indent: usize, has_header: bool) -> Option<()> {
        let options = self.options;
        let table = &options.table;
        let rows: Vec<Vec<Vec<String>>> = rows
            .iter()
            .map(|row| wrapped(row, table.width))
            .collect::<Option<_>>()?;
        let columns = rows.iter().flatten().map(Vec::len).min()?;
        let width_of = |column: usize| {
            let cells = rows.iter().flatten().filter_map(|row| row.get(column));
            cells.map(|cell| count(cell)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width_of).collect();
        let around = count(&table.prefix) + count(&table.suffix);
        let between = count(&table.delim) * columns.saturating_sub(1);
        let width = around + widths.iter().sum::<usize>() + between;
        let rule = table.row_delimiter.repeat(width);
        let mut has_header = has_header;
        if table.separate_rows {
            self.line(indent, Color::LightGray, &rule, "");
        }
        for row in &rows {
            for line in row {
                let cells = line.iter().zip(&widths);
                let cells: Vec<String> = cells
                    .map(|(cell, width)| justified(cell, *width, table.justify))
                    .collect();
                let line = format!(
                    "{}{}{}",
                    table.prefix,
                    cells.join(&table.delim),
                    table.suffix
                );
                self.line(indent, Color::White, &line, "");
            }
            if table.separate_rows || has_header {
                self.line(indent, Color::LightGray, &rule, "");
                has_header = false;
            }
        }
        Some(())
    }
}

fn list(items: Vec<Node>) -> Node {
    Node::Sequence(saltern_python::Sequence::List, items)
}

fn value_of<'a>(entries: &'a [(Node, Node)], name: &str) -> Option<&'a Node> {
    let mut entries = entries.iter();
    let found = entries.find(|(key, _)| matches!(key, Node::Text(key) if key == name));
    found.map(|(_, value)| value)
}

fn is_truthy(node: &Node) -> bool {
    match node {
        Node::None => false,
        Node::Bool(flag) => *flag,
        Node::Int(number) => *number != 0,
        Node::Float(number) => *number != 0.0,
        Node::Text(text) => !text.is_empty(),
        Node::Bytes(bytes) => !bytes.is_empty(),
        Node::Sequence(_, items) => !items.is_empty(),
        Node::Dict(entries) => !entries.is_empty(),
        Node::Other { .. } => true,
    }
}

/// The lines of a row, as many as its cell with the fewest lines has. Cells must be texts.
fn wrapped(row: &Node, width: usize) -> Option<Vec<Vec<String>>> {
    let cells: Vec<String> = match row {
        Node::Sequence(_, cells) => {
            let cells = cells.iter().map(|cell| match cell {
                Node::Text(text) => Some(wrapped_cell(text, width)),
                _ => None,
            });
            cells.collect::<Option<_>>()?
        }
        // Labels that are one text.
        Node::Text(text) => text.chars().map(String::from).collect(),
        _ => return None,
    };
    let cells: Vec<Vec<&str>> = cells
        .iter()
        .map(|cell| cell.split('\n').collect())
        .collect();
    let lines = cells.iter().map(Vec::len).min()?;
    let line = |at: usize| {
        let parts = cells.iter().filter_map(|cell| cell.get(at));
        parts.map(|part| (*part).to_owned()).collect()
    };
    Some((0..lines).map(line).collect())
}

/// A cell whose lines end at a space where the next word would reach the width.
fn wrapped_cell(text: &str, width: usize) -> String {
    let mut words = text.split(' ');
    let mut cell = words.next().unwrap_or_default().to_owned();
    for word in words {
        let line = cell.rsplit('\n').next().unwrap_or_default();
        let start = word.split('\n').next().unwrap_or_default();
        let is_full = count(line) + count(start) >= width;
        cell.push(if is_full { '\n' } else { ' ' });
        cell.push_str(word);
    }
    cell
}

fn count(text: &str) -> usize {
    text.chars().count()
}

fn justified(text: &str, width: usize, justify: Justify) -> String {
    match justify {
        Justify::Center => center(text, width),
        Justify::Left => format!("{text:<width$}"),
        Justify::Right => format!("{text:>width$}"),
    }
}

/// Rows in the order of Python's `sorted`.
pub(crate) fn sorted_rows(rows: Vec<Node>) -> Option<Vec<Node>> {
    let sorted = sorted_by(&rows, |row| row)?;
    Some(sorted.into_iter().cloned().collect())
}
