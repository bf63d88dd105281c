//! How the outputter `table` draws: the options `out.table.…` of the configuration.

use saltern_config::MasterConfig;
use saltern_config::yaml::Node;
use saltern_output::{Justify, TableOptions};
use saltern_requests::yaml_value;

/// Reads them; stock's defaults for the others.
pub(crate) fn table_options(config: &MasterConfig) -> TableOptions {
    let mut table = TableOptions::default();
    let given = |name: &str| config.command_default(&format!("out.table.{name}"));
    let flag = |name: &str, default: bool| given(name).map_or(default, Node::is_truthy);
    let text =
        |name: &str| given(name).map(|node| saltern_python::str(&yaml_value(node)).into_owned());
    let number = |name: &str| {
        let number = given(name).and_then(|node| node.as_i64());
        number.and_then(|number| usize::try_from(number).ok())
    };
    // Python takes an empty text for none here.
    let named = |name: &str| text(name).filter(|text| !text.is_empty());
    table.has_header = flag("has_header", table.has_header);
    table.separate_rows = flag("separate_rows", table.separate_rows);
    table.row_delimiter = text("row_delimiter").unwrap_or(table.row_delimiter);
    table.delim = text("delim").unwrap_or(table.delim);
    table.prefix = text("prefix").unwrap_or(table.prefix);
    table.suffix = text("suffix").unwrap_or(table.suffix);
    table.width = number("width").unwrap_or(table.width);
    table.nested_indent = number("nested_indent").unwrap_or(table.nested_indent);
    table.justify = match text("justify").as_deref() {
        Some("left") => Justify::Left,
        Some("right") => Justify::Right,
        _ => Justify::Center,
    };
    table.rows_key = named("rows_key");
    table.labels_key = named("labels_key");
    table.title = named("title");
    table
}
