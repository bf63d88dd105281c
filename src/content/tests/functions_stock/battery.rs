//! Every filter, test and global function of templates, and every function of `salt`, on odd values:
//! `None`, numbers, empty and long texts, lists, mappings, a tuple, bytes, what is undefined. What
//! stock prints of them is what is printed here, but for what stands in [`KNOWN`].

use saltern_content::render::jinja;
use saltern_content::render::modules::Facts;
use saltern_wire::msgpack::Value;

use super::comparison::Comparison;
use super::{ask_stock, context, registry};

/// Filters whose result is not the same twice: whether there is one is all that is compared.
const BY_CHANCE: [&str; 8] = [
    "gen_mac",
    "rand_str",
    "random",
    "random_hash",
    "random_sample",
    "random_shuffle",
    "random_str",
    "uuid",
];

/// Filters that make sets, whose order changes from process to process in Python.
const SETS: [&str; 5] = [
    "difference",
    "intersect",
    "symmetric_difference",
    "union",
    "unique",
];

const DATES: &str =
    "dates as text are read in the usual forms only, not as `timelib` reads a letter";
const OPEN_FILES: &str = "a number is no file: stock looks at what the master has open under it";
const BYTES: &str = "bytes have no methods of texts, and are no scalar of YAML";

/// Templates that differ, and why.
const KNOWN: &[(&str, &str)] = &[
    ("{{ ('a') | date_format }}", DATES),
    ("{{ ('a') | date_format('%Y') }}", DATES),
    ("{{ ('a') | strftime }}", DATES),
    ("{{ ('a') | strftime('%Y') }}", DATES),
    ("{{ (' ') | date_format }}", DATES),
    ("{{ (' ') | date_format('%Y') }}", DATES),
    ("{{ (' ') | strftime }}", DATES),
    ("{{ (' ') | strftime('%Y') }}", DATES),
    ("{{ (0) | is_empty }}", OPEN_FILES),
    ("{{ (1) | is_empty }}", OPEN_FILES),
    ("{{ (true) | is_empty }}", OPEN_FILES),
    ("{{ (false) | is_empty }}", OPEN_FILES),
    ("{{ ('grün'.encode()) | method_call('upper') }}", BYTES),
    ("{{ ('grün'.encode()) | yaml_encode }}", BYTES),
];

/// The letters of a text, in their order.
fn letters(text: &str) -> Vec<char> {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters
}

#[test]
fn functions_with_odd_values_answer_as_in_stock() {
    let root = tempfile::tempdir().expect("a directory");
    let functions = registry(&Facts::default(), root.path());
    let names: Vec<&str> = functions.names().collect();
    std::fs::write(root.path().join("functions"), names.join("\n")).expect("the directory is ours");
    let document = ask_stock(root.path(), &["battery"]);
    let context = context(&document, root.path());
    let rows = document
        .get("rows")
        .and_then(Value::as_array)
        .expect("rows");
    assert!(
        rows.len() >= 7000,
        "{} templates are not enough",
        rows.len()
    );
    let mut comparison = Comparison::default();
    for row in rows {
        let text = |name: &str| row.get(name).and_then(Value::as_str);
        let (name, template) = (
            text("name").expect("a name"),
            text("template").expect("a template"),
        );
        let ours = jinja::render(template, "site.sls", &context);
        let same = match (&ours, text("output")) {
            (Ok(_), Some(_)) if BY_CHANCE.contains(&name) => true,
            (Ok(ours), Some(stock)) if SETS.contains(&name) => letters(ours) == letters(stock),
            (Ok(ours), Some(stock)) => ours == stock,
            // What stock refuses may have a text here.
            (_, None) => true,
            (Err(_), Some(_)) => false,
        };
        let is_known = KNOWN.iter().any(|(known, _)| *known == template);
        comparison.add(template, row, &ours, (same, is_known));
    }
    comparison.finish();
}
